/*
 * std::function as libstdc++ of GCC 4.8 laid it out and called it; included by abi_gcc48.h.
 */
#ifndef MEMONGER_MXNET_GCC48_FUNCTION_H_
#define MEMONGER_MXNET_GCC48_FUNCTION_H_

#include <cstddef>
#include <functional>
#include <new>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace gcc48 {

union any_data {
  void* obj;
  void (*fun)();
  void (any_data::*mem)();
  char raw[16];
};

enum manager_op { kTypeInfo, kFunctorPtr, kClone, kDestroy };

template <class F>
struct functor_manager {
  static constexpr bool local = std::is_trivially_copyable<F>::value &&
                                sizeof(F) <= sizeof(any_data) && alignof(F) <= alignof(any_data);
  static F* get(const any_data& d) {
    return local ? reinterpret_cast<F*>(const_cast<char*>(d.raw)) : static_cast<F*>(d.obj);
  }
  static void create(any_data* d, F&& f, std::true_type) { ::new (d->raw) F(std::move(f)); }
  static void create(any_data* d, F&& f, std::false_type) { d->obj = new F(std::move(f)); }
  static void destroy(any_data*, std::true_type) {}
  static void destroy(any_data* d, std::false_type) { delete static_cast<F*>(d->obj); }
  static bool manage(any_data& dst, const any_data& src, manager_op op) {  // NOLINT
    using is_local = std::integral_constant<bool, local>;
    switch (op) {
      case kTypeInfo:
        dst.obj = const_cast<std::type_info*>(&typeid(F));
        break;
      case kFunctorPtr:
        dst.obj = get(src);
        break;
      case kClone:
        create(&dst, F(*get(src)), is_local());
        break;
      case kDestroy:
        destroy(&dst, is_local());
        break;
    }
    return false;
  }
};

template <class R, class... A>
class function {
  using manager_t = bool (*)(any_data&, const any_data&, manager_op);
  using invoker_t = R (*)(const any_data&, A...);  // by value: the GCC 4.8 convention
  any_data data_{};
  manager_t manager_ = nullptr;
  invoker_t invoker_ = nullptr;

  template <class F>
  static R invoke(const any_data& d, A... a) {
    return (*functor_manager<F>::get(d))(std::forward<A>(a)...);
  }
  template <class F>
  static R invoke_void(const any_data& d, A... a) {
    (*functor_manager<F>::get(d))(std::forward<A>(a)...);
  }
  template <class F>
  static bool not_empty(F* f) {
    return f != nullptr;
  }
  template <class F>
  static bool not_empty(const F&) {
    return true;
  }
  template <class F>
  static invoker_t pick(std::true_type) {
    return &function::template invoke_void<F>;
  }
  template <class F>
  static invoker_t pick(std::false_type) {
    return &function::template invoke<F>;
  }
  template <class F>
  using enable = typename std::enable_if<
      !std::is_base_of<function, F>::value && !std::is_member_pointer<F>::value &&
      (std::is_void<R>::value ||
       std::is_convertible<decltype(std::declval<F&>()(std::declval<A>()...)), R>::value)>::type;

 public:
  using result_type = R;
  function() noexcept {}
  function(std::nullptr_t) noexcept {}  // NOLINT
  function(const function& o) {
    if (o.manager_) {
      o.manager_(data_, o.data_, kClone);
      manager_ = o.manager_;
      invoker_ = o.invoker_;
    }
  }
  function(function&& o) noexcept { swap(o); }
  template <class F, class = enable<F>>
  function(F f) {  // NOLINT
    if (not_empty(f)) {
      functor_manager<F>::create(&data_, std::move(f),
                                 std::integral_constant<bool, functor_manager<F>::local>());
      manager_ = &functor_manager<F>::manage;
      invoker_ = pick<F>(std::is_void<R>());
    }
  }
  ~function() {
    if (manager_) manager_(data_, data_, kDestroy);
  }
  function& operator=(const function& o) {
    function(o).swap(*this);
    return *this;
  }
  function& operator=(function&& o) {
    function(std::move(o)).swap(*this);
    return *this;
  }
  void swap(function& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(manager_, o.manager_);
    std::swap(invoker_, o.invoker_);
  }
  explicit operator bool() const noexcept { return manager_ != nullptr; }
  R operator()(A... a) const {
    if (!manager_) throw std::bad_function_call();
    return invoker_(data_, std::forward<A>(a)...);
  }
};

}  // namespace gcc48

namespace std {

#define GCC48_FUNCTION(SIG, ...)                              \
  class function<SIG> : public gcc48::function<__VA_ARGS__> { \
    using base = gcc48::function<__VA_ARGS__>;                \
                                                              \
   public:                                                    \
    using base::base;                                         \
    function() noexcept {}                                    \
    function(const function&) = default;                      \
    function(function&&) = default;                           \
    function& operator=(const function&) = default;           \
    function& operator=(function&&) = default;                \
  };
template <class R>
GCC48_FUNCTION(R(), R)
template <class R, class A>
GCC48_FUNCTION(R(A), R, A)
template <class R, class A, class B>
GCC48_FUNCTION(R(A, B), R, A, B)
template <class R, class A, class B, class C>
GCC48_FUNCTION(R(A, B, C), R, A, B, C)
template <class R, class A, class B, class C, class D>
GCC48_FUNCTION(R(A, B, C, D), R, A, B, C, D)
template <class R, class A, class B, class C, class D, class E>
GCC48_FUNCTION(R(A, B, C, D, E), R, A, B, C, D, E)
template <class R, class A, class B, class C, class D, class E, class F>
GCC48_FUNCTION(R(A, B, C, D, E, F), R, A, B, C, D, E, F)
template <class R, class A, class B, class C, class D, class E, class F, class G>
GCC48_FUNCTION(R(A, B, C, D, E, F, G), R, A, B, C, D, E, F, G)
template <class R, class A, class B, class C, class D, class E, class F, class G, class H>
GCC48_FUNCTION(R(A, B, C, D, E, F, G, H), R, A, B, C, D, E, F, G, H)
template <class R, class A, class B, class C, class D, class E, class F, class G, class H, class I>
GCC48_FUNCTION(R(A, B, C, D, E, F, G, H, I), R, A, B, C, D, E, F, G, H, I)
#undef GCC48_FUNCTION

}  // namespace std

#endif  // MEMONGER_MXNET_GCC48_FUNCTION_H_
