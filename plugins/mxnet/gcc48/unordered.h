/*
 * std::unordered_map and _set as libstdc++ of GCC 4.8 laid them out; included by abi_gcc48.h.
 */
#ifndef MEMONGER_MXNET_GCC48_UNORDERED_H_
#define MEMONGER_MXNET_GCC48_UNORDERED_H_

#include <cstddef>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace gcc48 {

struct node_base {
  node_base* next;
};
template <class V, bool Cached>
struct node : node_base {
  typename std::aligned_storage<sizeof(V), alignof(V)>::type store;
  std::size_t code;
  V& v() { return *reinterpret_cast<V*>(&store); }
};
template <class V>
struct node<V, false> : node_base {
  typename std::aligned_storage<sizeof(V), alignof(V)>::type store;
  V& v() { return *reinterpret_cast<V*>(&store); }
};

template <class Node, class V>
struct node_iterator {
  using iterator_category = std::forward_iterator_tag;
  using value_type = typename std::remove_const<V>::type;
  using difference_type = std::ptrdiff_t;
  using pointer = V*;
  using reference = V&;
  Node* p = nullptr;
  node_iterator() = default;
  explicit node_iterator(node_base* n) : p(static_cast<Node*>(n)) {}
  template <class W, class = typename std::enable_if<std::is_convertible<W*, V*>::value>::type>
  node_iterator(const node_iterator<Node, W>& o) : p(o.p) {}  // NOLINT
  V& operator*() const { return p->v(); }
  V* operator->() const { return &p->v(); }
  node_iterator& operator++() {
    p = static_cast<Node*>(p->next);
    return *this;
  }
  node_iterator operator++(int) {
    node_iterator t = *this;
    ++*this;
    return t;
  }
  template <class W>
  bool operator==(const node_iterator<Node, W>& o) const {
    return p == o.p;
  }
  template <class W>
  bool operator!=(const node_iterator<Node, W>& o) const {
    return p != o.p;
  }
};

struct first_of {
  template <class P>
  auto operator()(const P& p) const -> const decltype(p.first)& {
    return p.first;
  }
};
struct itself {
  template <class T>
  const T& operator()(const T& t) const {
    return t;
  }
};

// GCC 4.8 caches the hash code in the node unless the hash is "fast" and noexcept.
template <class H>
struct slow_hash : std::false_type {};
template <class C, class T, class A>
struct slow_hash<std::hash<std::basic_string<C, T, A>>> : std::true_type {};

// Members, in the order of GCC 4.8's std::_Hashtable (hash, equality and allocator
// are empty bases there).
template <class K, class V, class KeyOf, class H, class E, bool ConstIter>
class table {
  static_assert(std::is_empty<H>::value && std::is_empty<E>::value,
                "only stateless hash and equality are supported");
  static constexpr bool cached =
      slow_hash<H>::value || !noexcept(std::declval<const H&>()(std::declval<const K&>()));

 public:
  using node_t = node<V, cached>;
  using key_type = K;
  using value_type = V;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using hasher = H;
  using key_equal = E;
  using const_iterator = node_iterator<node_t, const V>;
  using iterator =
      typename std::conditional<ConstIter, const_iterator, node_iterator<node_t, V>>::type;
  using reference = V&;
  using const_reference = const V&;

 protected:
  node_base** buckets_;
  size_type bucket_count_;
  node_base head_;
  size_type size_;
  std::__detail::_Prime_rehash_policy policy_;

  static size_type code_of(const node_t* n, std::true_type) { return n->code; }
  static size_type code_of(const node_t* n, std::false_type) {
    return H()(KeyOf()(const_cast<node_t*>(n)->v()));
  }
  static size_type code_of(const node_base* n) {
    return code_of(static_cast<const node_t*>(n), std::integral_constant<bool, cached>());
  }
  static void set_code(node_t* n, size_type c, std::true_type) { n->code = c; }
  static void set_code(node_t*, size_type, std::false_type) {}
  size_type slot(const node_base* n) const { return code_of(n) % bucket_count_; }
  static node_base** new_buckets(size_type n) {
    void* p = ::operator new(n * sizeof(node_base*));
    std::memset(p, 0, n * sizeof(node_base*));
    return static_cast<node_base**>(p);
  }
  template <class... A>
  static node_t* new_node(A&&... a) {
    node_t* n = static_cast<node_t*>(::operator new(sizeof(node_t)));
    try {
      n->next = nullptr;
      ::new (static_cast<void*>(&n->store)) V(std::forward<A>(a)...);
    } catch (...) {
      ::operator delete(n);
      throw;
    }
    return n;
  }
  static void free_node(node_base* b) {
    node_t* n = static_cast<node_t*>(b);
    n->v().~V();
    ::operator delete(n);
  }
  void init(size_type n) {
    policy_ = std::__detail::_Prime_rehash_policy();
    bucket_count_ = policy_._M_next_bkt(n);
    buckets_ = new_buckets(bucket_count_);
    head_.next = nullptr;
    size_ = 0;
  }
  node_base* before(const K& k, size_type code) const {
    const size_type b = code % bucket_count_;
    node_base* prev = buckets_[b];
    if (!prev) return nullptr;
    for (node_base* p = prev->next;; p = p->next) {
      if (code_of(p) == code && E()(k, KeyOf()(static_cast<node_t*>(p)->v()))) return prev;
      if (!p->next || slot(p->next) != b) return nullptr;
      prev = p;
    }
  }
  node_t* lookup(const K& k, size_type code) const {
    node_base* b = before(k, code);
    return b ? static_cast<node_t*>(b->next) : nullptr;
  }
  void relink(size_type n) {
    node_base** nb = new_buckets(n);
    node_base* p = head_.next;
    head_.next = nullptr;
    size_type bbegin = 0;
    while (p) {
      node_base* next = p->next;
      const size_type b = code_of(p) % n;
      if (!nb[b]) {
        p->next = head_.next;
        head_.next = p;
        nb[b] = &head_;
        if (p->next) nb[bbegin] = p;
        bbegin = b;
      } else {
        p->next = nb[b]->next;
        nb[b]->next = p;
      }
      p = next;
    }
    ::operator delete(buckets_);
    buckets_ = nb;
    bucket_count_ = n;
  }
  iterator link(node_t* n, size_type code) {
    set_code(n, code, std::integral_constant<bool, cached>());
    const std::pair<bool, size_type> r = policy_._M_need_rehash(bucket_count_, size_, 1);
    if (r.first) relink(r.second);
    const size_type b = code % bucket_count_;
    if (buckets_[b]) {
      n->next = buckets_[b]->next;
      buckets_[b]->next = n;
    } else {
      n->next = head_.next;
      head_.next = n;
      if (n->next) buckets_[slot(n->next)] = n;
      buckets_[b] = &head_;
    }
    ++size_;
    return iterator(n);
  }
  iterator unlink(node_base* prev) {
    node_base* n = prev->next;
    const size_type b = slot(n);
    node_base* next = n->next;
    const size_type nb = next ? slot(next) : 0;
    if (prev == buckets_[b]) {  // first of its bucket
      if (!next || nb != b) {
        if (next) buckets_[nb] = buckets_[b];
        if (&head_ == buckets_[b]) head_.next = next;
        buckets_[b] = nullptr;
      }
    } else if (next && nb != b) {
      buckets_[nb] = prev;
    }
    prev->next = next;
    free_node(n);
    --size_;
    return iterator(next);
  }
  void copy_from(const table& o) {
    for (node_base* p = o.head_.next; p; p = p->next) insert(static_cast<node_t*>(p)->v());
  }

 public:
  explicit table(size_type n = 10) { init(n); }
  template <class It, class = typename std::iterator_traits<It>::iterator_category>
  table(It first, It last) {
    init(10);
    insert(first, last);
  }
  table(std::initializer_list<V> l) {
    init(10);
    insert(l.begin(), l.end());
  }
  table(const table& o) {
    init(o.bucket_count_);
    copy_from(o);
  }
  table(table&& o) {
    init(0);
    swap(o);
  }
  ~table() {
    clear();
    ::operator delete(buckets_);
  }
  table& operator=(const table& o) {
    if (this != &o) {
      table t(o);
      swap(t);
    }
    return *this;
  }
  table& operator=(table&& o) {
    table t(std::move(o));
    swap(t);
    return *this;
  }
  void swap(table& o) {
    std::swap(buckets_, o.buckets_);
    std::swap(bucket_count_, o.bucket_count_);
    std::swap(head_.next, o.head_.next);
    std::swap(size_, o.size_);
    std::swap(policy_, o.policy_);
    if (head_.next) buckets_[slot(head_.next)] = &head_;
    if (o.head_.next) o.buckets_[o.slot(o.head_.next)] = &o.head_;
  }
  iterator begin() { return iterator(head_.next); }
  iterator end() { return iterator(nullptr); }
  const_iterator begin() const { return const_iterator(head_.next); }
  const_iterator end() const { return const_iterator(nullptr); }
  size_type size() const { return size_; }
  bool empty() const { return size_ == 0; }
  iterator find(const K& k) { return iterator(lookup(k, H()(k))); }
  const_iterator find(const K& k) const { return const_iterator(lookup(k, H()(k))); }
  size_type count(const K& k) const { return lookup(k, H()(k)) != nullptr; }
  template <class... A>
  std::pair<iterator, bool> emplace(A&&... a) {
    node_t* n = new_node(std::forward<A>(a)...);
    const K& k = KeyOf()(n->v());
    const size_type code = H()(k);
    if (node_t* old = lookup(k, code)) {
      free_node(n);
      return {iterator(old), false};
    }
    return {link(n, code), true};
  }
  std::pair<iterator, bool> insert(const V& v) { return emplace(v); }
  std::pair<iterator, bool> insert(V&& v) { return emplace(std::move(v)); }
  template <class P, class = typename std::enable_if<std::is_constructible<V, P&&>::value>::type>
  std::pair<iterator, bool> insert(P&& p) {
    return emplace(std::forward<P>(p));
  }
  template <class It, class = typename std::iterator_traits<It>::iterator_category>
  void insert(It first, It last) {
    for (; first != last; ++first) emplace(*first);
  }
  void insert(std::initializer_list<V> l) { insert(l.begin(), l.end()); }
  size_type erase(const K& k) {
    node_base* b = before(k, H()(k));
    if (!b) return 0;
    unlink(b);
    return 1;
  }
  iterator erase(const_iterator it) { return unlink(before(KeyOf()(*it), H()(KeyOf()(*it)))); }
  void clear() {
    for (node_base* p = head_.next; p;) {
      node_base* next = p->next;
      free_node(p);
      p = next;
    }
    std::memset(buckets_, 0, bucket_count_ * sizeof(node_base*));
    head_.next = nullptr;
    size_ = 0;
  }
};

}  // namespace gcc48

namespace std {

template <class K, class T, class H, class P>
class unordered_map<K, T, H, P, allocator<pair<const K, T>>>
    : public gcc48::table<K, pair<const K, T>, gcc48::first_of, H, P, false> {
  using base = gcc48::table<K, pair<const K, T>, gcc48::first_of, H, P, false>;

 public:
  using mapped_type = T;
  using base::base;
  unordered_map() {}
  T& operator[](const K& k) {
    const size_t code = H()(k);
    if (auto* n = this->lookup(k, code)) return n->v().second;
    return this->link(base::new_node(piecewise_construct, forward_as_tuple(k), tuple<>()), code)
        ->second;
  }
  T& at(const K& k) {
    auto* n = this->lookup(k, H()(k));
    if (!n) __throw_out_of_range("unordered_map::at");
    return n->v().second;
  }
  const T& at(const K& k) const { return const_cast<unordered_map*>(this)->at(k); }
};

template <class K, class H, class P>
class unordered_set<K, H, P, allocator<K>> : public gcc48::table<K, K, gcc48::itself, H, P, true> {
  using base = gcc48::table<K, K, gcc48::itself, H, P, true>;

 public:
  using base::base;
  unordered_set() {}
};

}  // namespace std

#endif  // MEMONGER_MXNET_GCC48_UNORDERED_H_
