#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "core/memory/storage.h"
#include "core/random.h"

namespace memonger {
namespace storage {

// --------------------------------------------------------------------------------- bound

namespace {

// The shared-object bound of one group of blocks.
int64_t GroupBound(const std::vector<int64_t>& bytes, const std::vector<int32_t>& first,
                   const std::vector<int32_t>& last, int32_t instants) {
  std::vector<std::vector<int32_t>> starting(instants), ending(instants);
  for (size_t i = 0; i < bytes.size(); ++i) {
    starting[first[i]].push_back(static_cast<int32_t>(i));
    ending[last[i]].push_back(static_cast<int32_t>(i));
  }
  std::vector<int64_t> live, most;  // sizes alive, falling
  for (int32_t t = 0; t < instants; ++t) {
    for (int32_t i : starting[t])
      live.insert(std::upper_bound(live.begin(), live.end(), bytes[i], std::greater<int64_t>()),
                  bytes[i]);
    if (ending[t].empty()) continue;  // more to come: not a maximum
    if (most.size() < live.size()) most.resize(live.size(), 0);
    for (size_t k = 0; k < live.size(); ++k) most[k] = std::max(most[k], live[k]);
    for (int32_t i : ending[t])
      live.erase(std::lower_bound(live.begin(), live.end(), bytes[i], std::greater<int64_t>()));
  }
  int64_t bound = 0;
  for (int64_t size : most) bound += size;
  return bound;
}

}  // namespace

int64_t LowerBound(const Blocks& blocks, const Model& model) {
  // One group at a time, as in Packer.
  std::vector<std::pair<std::pair<int32_t, int32_t>, int32_t>> keys;
  for (size_t i = 0; i < blocks.blocks.size(); ++i)
    keys.push_back({{blocks.blocks[i].pool, blocks.blocks[i].device}, static_cast<int32_t>(i)});
  std::sort(keys.begin(), keys.end());
  int64_t total = 0;
  for (size_t from = 0, to; from < keys.size(); from = to) {
    std::vector<int64_t> bytes;
    std::vector<int32_t> first, last;
    for (to = from; to < keys.size() && keys[to].first == keys[from].first; ++to) {
      const Block& block = blocks.blocks[keys[to].second];
      bytes.push_back(RoundUp(block.bytes, model.rounding));
      first.push_back(block.start);
      last.push_back(block.end);
    }
    total += GroupBound(bytes, first, last, blocks.num_steps + 1);
  }
  return total;
}

// -------------------------------------------------------------------------------- Packer

// A segment tree over instants; each node has a word with one bit for each of 64 buffers. `any`:
// the buffer is in use somewhere below the node; `all`: in use throughout, marked where a life
// was entered. Both lie side by side: node k at 2 k and 2 k + 1.
uint64_t Packer::BusyBuffers(size_t chunk, int32_t first, int32_t last) const {
  const uint64_t* tree = &tree_[chunk * leaves_ * 4];
  uint64_t busy = 0;
  size_t l = leaves_ + first, r = leaves_ + last;
  for (size_t node = l >> 1; node; node >>= 1) busy |= tree[2 * node + 1];
  for (size_t node = r >> 1; node; node >>= 1) busy |= tree[2 * node + 1];
  for (++r; l < r; l >>= 1, r >>= 1) {
    if (l & 1) busy |= tree[2 * l++];
    if (r & 1) busy |= tree[2 * --r];
  }
  return busy;
}

void Packer::Occupy(int32_t buffer, int32_t first, int32_t last) {
  uint64_t* tree = &tree_[(buffer >> 6) * leaves_ * 4];
  const uint64_t bit = uint64_t{1} << (buffer & 63);
  size_t l = leaves_ + first, r = leaves_ + last;
  for (size_t node = l >> 1; node; node >>= 1) tree[2 * node] |= bit;
  for (size_t node = r >> 1; node; node >>= 1) tree[2 * node] |= bit;
  for (++r; l < r; l >>= 1, r >>= 1) {
    if (l & 1) {
      tree[2 * l] |= bit;
      tree[2 * l++ + 1] |= bit;
    }
    if (r & 1) {
      --r;
      tree[2 * r] |= bit;
      tree[2 * r + 1] |= bit;
    }
  }
}

void Packer::Groups(const Blocks& b) {
  members_.resize(b.blocks.size());
  for (size_t i = 0; i < members_.size(); ++i) members_[i] = static_cast<int32_t>(i);
  auto before = [&](int32_t x, int32_t y) {
    const Block &p = b.blocks[x], &q = b.blocks[y];
    return p.pool != q.pool ? p.pool < q.pool : p.device < q.device;
  };
  if (!std::is_sorted(members_.begin(), members_.end(), before))
    std::stable_sort(members_.begin(), members_.end(), before);
  group_begin_.assign(1, 0);
  for (size_t i = 1; i < members_.size(); ++i)
    if (before(members_[i - 1], members_[i])) group_begin_.push_back(static_cast<int32_t>(i));
  if (!members_.empty()) group_begin_.push_back(static_cast<int32_t>(members_.size()));
}

void Packer::Load(const Blocks& b, const Model& model, size_t group) {
  // Two lives meet exactly when one begins during the other: only starts matter as instants.
  const int32_t from = group_begin_[group], n = group_begin_[group + 1] - from;
  member_.assign(members_.begin() + from, members_.begin() + from + n);
  rank_.assign(b.num_steps + 1, 0);
  for (int32_t i : member_) rank_[b.blocks[i].start] = 1;
  int32_t instants = 0;
  for (int32_t& r : rank_) r = instants += r;  // starts up to this step
  bytes_.resize(n);
  first_.resize(n);
  last_.resize(n);
  for (int32_t i = 0; i < n; ++i) {
    const Block& block = b.blocks[member_[i]];
    bytes_[i] = RoundUp(block.bytes, model.rounding);
    first_[i] = rank_[block.start] - 1;
    last_[i] = rank_[block.end] - 1;
  }
  for (leaves_ = 1; leaves_ < static_cast<size_t>(instants);) leaves_ *= 2;
}

int64_t Packer::Greedy(const std::vector<int32_t>& order, int64_t limit, bool falling) {
  // Each block goes where the pool grows least, then where least is wasted, then to the buffer
  // opened last. Returns at once, with more than `limit`, when that is exceeded. `falling`: the
  // order is largest first, so every buffer is large enough and the last one wastes least.
  buffers_.clear();
  object_.resize(order.size());
  int64_t total = 0;
  const size_t chunk_words = leaves_ * 4;
  for (int32_t i : order) {
    const int64_t size = bytes_[i];
    int32_t best = -1;
    int64_t grows = size, waste = 0;
    bool done = false;
    for (size_t chunk = (buffers_.size() + 63) / 64; chunk-- > 0 && !done;) {
      uint64_t free = ~BusyBuffers(chunk, first_[i], last_[i]);
      const size_t there = buffers_.size() - chunk * 64;
      if (there < 64) free &= (uint64_t{1} << there) - 1;
      while (free && !done) {
        const int bit = 63 - __builtin_clzll(free);
        free ^= uint64_t{1} << bit;
        const int32_t o = static_cast<int32_t>(chunk * 64) + bit;
        const int64_t have = buffers_[o];
        const int64_t grow = size > have ? size - have : 0, spare = have > size ? have - size : 0;
        if (grow > grows || (best >= 0 && grow == grows && spare >= waste)) continue;
        best = o;
        grows = grow;
        waste = spare;
        done = falling || (!grow && !spare);
      }
    }
    if (best < 0) {
      best = static_cast<int32_t>(buffers_.size());
      buffers_.push_back(0);
      if ((best & 63) == 0) {
        const size_t needed = (best / 64 + 1) * chunk_words;
        if (tree_.size() < needed) tree_.resize(std::max(needed, tree_.size() * 2));
        std::fill_n(tree_.begin() + (needed - chunk_words), chunk_words, 0);
      }
    }
    if (size > buffers_[best]) {
      total += size - buffers_[best];
      buffers_[best] = size;
      if (total > limit) return total;
    }
    Occupy(best, first_[i], last_[i]);
    object_[i] = best;
    ++placed_;
  }
  return total;
}

void Packer::SortByBytes() {  // largest first, then earliest; member order is order of start
  order_.resize(member_.size());
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<int32_t>(i);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](int32_t x, int32_t y) { return bytes_[x] > bytes_[y]; });
}

void Packer::ImproveGroup(const Model& model, int64_t bound) {
  const size_t n = member_.size();
  auto attempt = [&](const std::vector<int32_t>& order, bool falling) {
    const int64_t total = Greedy(order, best_, falling);
    if (total < best_) {
      best_ = total;
      best_object_ = object_;
    }
    return total;
  };
  // By size; by size, longest first; by size times length; by time. The best one is varied.
  SortByBytes();
  std::vector<std::vector<int32_t>> orders(4, order_);
  key_.resize(n);
  for (size_t i = 0; i < n; ++i) key_[i] = last_[i] - first_[i] + 1;
  std::stable_sort(orders[1].begin(), orders[1].end(), [&](int32_t x, int32_t y) {
    return bytes_[x] != bytes_[y] ? bytes_[x] > bytes_[y] : key_[x] > key_[y];
  });
  for (size_t i = 0; i < n; ++i) orders[3][i] = static_cast<int32_t>(i);
  for (size_t i = 0; i < n; ++i) key_[i] *= bytes_[i];
  orders[2] = orders[3];
  std::stable_sort(orders[2].begin(), orders[2].end(),
                   [&](int32_t x, int32_t y) { return key_[x] > key_[y]; });
  int64_t current = std::numeric_limits<int64_t>::max();
  for (size_t k = 0; k < orders.size(); ++k) {
    if (best_ <= bound) return;
    const std::vector<int32_t>& order = orders[k];
    const int64_t total = attempt(order, k < 2);
    if (total < current) {
      current = total;
      order_ = order;
    }
  }
  // Small changes of the order are kept while they do no harm.
  const int64_t cap = 400000000 / (static_cast<int64_t>(n) * static_cast<int64_t>(n));
  const int64_t tries = n < 3 ? 0 : std::min<int64_t>(model.effort, cap);
  Xorshift32 random;
  current = Greedy(order_, std::numeric_limits<int64_t>::max(), false);
  for (int64_t t = 0; t < tries && best_ > bound; ++t) {
    trial_ = order_;
    const uint32_t moves = 1 + random.Below(4);
    for (uint32_t k = 0; k < moves; ++k) {
      const uint32_t i = random.Below(static_cast<uint32_t>(n));
      const uint32_t j = random.Below(static_cast<uint32_t>(n));
      std::swap(trial_[i], trial_[j]);
    }
    const int64_t total = Greedy(trial_, current, false);
    if (total > current) continue;
    current = total;
    order_.swap(trial_);
    if (total < best_) {
      best_ = total;
      best_object_ = object_;
    }
  }
}

void Packer::Best(const Blocks& blocks, const Model& model, Assignment* result) {
  Assignment stock;
  Stock(blocks, model, &stock);
  result->buffer_of.assign(blocks.blocks.size(), -1);
  int32_t first_buffer = 0;
  placed_ = 0;
  Groups(blocks);
  std::vector<int32_t> number;
  for (size_t g = 0; g + 1 < group_begin_.size(); ++g) {
    Load(blocks, model, g);
    // MXNet's own buffers of this group are the first answer, numbered in order of use.
    number.assign(stock.buffer_bytes.size(), -1);
    best_object_.resize(member_.size());
    best_ = 0;
    int32_t used = 0;
    for (size_t i = 0; i < member_.size(); ++i) {
      const int32_t id = stock.buffer_of[member_[i]];
      if (number[id] < 0) {
        number[id] = used++;
        best_ += stock.buffer_bytes[id];
      }
      best_object_[i] = number[id];
    }
    int32_t instants = 0;
    for (int32_t t : first_) instants = std::max(instants, t + 1);
    const int64_t bound = GroupBound(bytes_, first_, last_, instants);
    if (best_ > bound) ImproveGroup(model, bound);
    int32_t next = first_buffer;
    for (size_t i = 0; i < member_.size(); ++i) {
      result->buffer_of[member_[i]] = first_buffer + best_object_[i];
      next = std::max(next, first_buffer + best_object_[i] + 1);
    }
    first_buffer = next;
  }
  Measure(blocks, model, result);
  result->placed = placed_;
}

}  // namespace storage
}  // namespace memonger
