#include "core/memory/skyline.h"

#include <algorithm>
#include <cstddef>
#include <functional>

#include "core/random.h"

namespace memonger {
namespace storage {

void Skyline::Add(int32_t start, int32_t end, int64_t bytes) {
  start_.push_back(start);
  end_.push_back(end);
  bytes_.push_back(bytes);
  num_steps_ = std::max(num_steps_, end + 1);
}

int64_t Skyline::Bound() const {
  std::vector<int64_t> change(static_cast<size_t>(num_steps_) + 1, 0);
  for (size_t i = 0; i < bytes_.size(); ++i) {
    change[start_[i]] += bytes_[i];
    change[end_[i] + 1] -= bytes_[i];
  }
  int64_t live = 0, most = 0;
  for (int64_t c : change) most = std::max(most, live += c);
  return most;
}

int64_t Skyline::Search(int64_t enough, int64_t tries, std::vector<int64_t>* offsets) {
  const int32_t n = static_cast<int32_t>(bytes_.size());
  by_start_.resize(n);
  for (int32_t i = 0; i < n; ++i) by_start_[i] = i;
  std::stable_sort(by_start_.begin(), by_start_.end(),
                   [&](int32_t a, int32_t b) { return start_[a] < start_[b]; });
  starts_at_.assign(static_cast<size_t>(num_steps_) + 1, 0);
  for (int32_t start : start_) ++starts_at_[start + 1];
  for (int32_t step = 0; step < num_steps_; ++step) starts_at_[step + 1] += starts_at_[step];

  const auto key = [&](int kind, int32_t i) -> std::pair<int64_t, int64_t> {
    const int64_t length = end_[i] - start_[i] + 1;
    if (kind == 0) return {length, bytes_[i]};
    if (kind == 1) return {bytes_[i] * length, 0};
    if (kind == 2) return {bytes_[i], length};
    return {-start_[i], bytes_[i]};
  };
  std::vector<int32_t> order(n), best;
  int64_t least = -1;
  for (int kind = 0; kind < 4 && (least < 0 || least > enough); ++kind) {
    for (int32_t i = 0; i < n; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return key(kind, a) > key(kind, b); });
    const int64_t reached = Place(order, least);
    if (least >= 0 && reached >= least) continue;
    least = reached;
    best = order;
    *offsets = offset_;
  }
  Xorshift32 random;
  for (int64_t left = n < 3 ? 0 : tries; left > 0 && least > enough; --left) {
    order = best;
    const uint32_t one = random.Below(static_cast<uint32_t>(n));
    std::swap(order[one], order[random.Below(static_cast<uint32_t>(n))]);
    const int64_t reached = Place(order, least);
    if (reached > least) continue;
    best.swap(order);
    if (reached < least) *offsets = offset_;
    least = reached;
  }
  return least;
}

// Each block of `order` in turn where the skyline is lowest. Gives up beyond `limit` (negative:
// none).
int64_t Skyline::Place(const std::vector<int32_t>& order, int64_t limit) {
  const int32_t n = static_cast<int32_t>(order.size());
  offset_.assign(n, 0);
  next_.resize(static_cast<size_t>(n) + 1);
  previous_.resize(static_cast<size_t>(n) + 1);
  rank_.resize(n);
  order_ = order;
  for (int32_t k = 0; k <= n; ++k) {  // place 0 is the list's head, place k + 1 is order[k]
    next_[k] = k < n ? k + 1 : 0;
    previous_[k] = k - 1;
  }
  for (int32_t k = 0; k < n; ++k) rank_[order[k]] = k;
  last_.assign(num_steps_, -1);
  before_.assign(num_steps_, -1);
  height_.assign(num_steps_, 0);
  lowest_.clear();
  last_[0] = num_steps_ - 1;
  Push(0);
  int64_t top = 0;
  for (int32_t left = n; left > 0;) {
    std::pop_heap(lowest_.begin(), lowest_.end(), std::greater<Lowest>());
    const Lowest low = lowest_.back();
    lowest_.pop_back();
    const int32_t first = low.second;
    if (last_[first] < 0 || height_[first] != low.first) continue;  // no longer there
    const int32_t block = FirstFit(first, last_[first]);
    if (block < 0) {
      Lift(first);
      continue;
    }
    ++placed_;
    offset_[block] = low.first;
    const int64_t above = low.first + bytes_[block];
    top = std::max(top, above);
    if (limit >= 0 && top > limit) return top;
    Fill(first, block);
    --left;
  }
  return top;
}

// The first block of the order that lives within these steps; -1: none is left that does.
int32_t Skyline::FirstFit(int32_t first, int32_t last) const {
  const int32_t begin = starts_at_[first], end = starts_at_[last + 1];
  const int32_t n = static_cast<int32_t>(order_.size());
  if (end - begin < n / 4) {
    int32_t best = -1;
    for (int32_t k = begin; k < end; ++k) {
      const int32_t i = by_start_[k];
      if (rank_[i] >= 0 && end_[i] <= last && (best < 0 || rank_[i] < rank_[best])) best = i;
    }
    return best;
  }
  for (int32_t k = next_[0]; k; k = next_[k]) {
    const int32_t i = order_[k - 1];
    if (start_[i] >= first && end_[i] <= last) return i;
  }
  return -1;
}

void Skyline::Push(int32_t first) {
  lowest_.push_back({height_[first], first});
  std::push_heap(lowest_.begin(), lowest_.end(), std::greater<Lowest>());
}

// Lays a block on the segment from `first` on.
void Skyline::Fill(int32_t first, int32_t block) {
  const int32_t rank = rank_[block];
  rank_[block] = -1;
  next_[previous_[rank + 1]] = next_[rank + 1];
  previous_[next_[rank + 1]] = previous_[rank + 1];

  if (!bytes_[block]) return Push(first);
  const int64_t height = height_[first];
  const int32_t start = start_[block], end = end_[block], last = last_[first];
  if (start > first) {
    last_[first] = start - 1;
    before_[start] = first;
    Push(first);
  }
  last_[start] = end;
  height_[start] = height + bytes_[block];
  Push(start);
  if (end < last) {
    last_[end + 1] = last;
    height_[end + 1] = height;
    before_[end + 1] = start;
    Push(end + 1);
  }
  if (last + 1 < num_steps_) before_[last + 1] = end < last ? end + 1 : start;
  int32_t joined = start;
  if (start == first && before_[start] >= 0 && height_[before_[start]] == height_[start]) {
    joined = before_[start];
    Join(joined);
  }
  if (last_[joined] + 1 < num_steps_ && height_[last_[joined] + 1] == height_[joined]) Join(joined);
}

// A segment becomes as high as its lower neighbour, and one with it.
void Skyline::Lift(int32_t first) {
  const int32_t left = before_[first], right = last_[first] + 1;
  if (left >= 0 && (right == num_steps_ || height_[left] <= height_[right])) {
    Join(left);
    if (right < num_steps_ && height_[left] == height_[right]) Join(left);
  } else {
    height_[first] = height_[right];
    Join(first);
    Push(first);
  }
}

// A segment takes over the steps of the one to its right.
void Skyline::Join(int32_t first) {
  const int32_t right = last_[first] + 1;
  last_[first] = last_[right];
  last_[right] = -1;
  if (last_[first] + 1 < num_steps_) before_[last_[first] + 1] = first;
}

}  // namespace storage
}  // namespace memonger
