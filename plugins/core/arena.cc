// Blocks at offsets of one buffer ("dynamic storage allocation"): see Arena in storage.h.
//
// Finding the smallest arena is NP-hard (Garey and Johnson 1979, SR2); placing one block after
// the other at the lowest free offset, in a good order, comes within a few percent of the peak of
// live bytes on training steps, whose lives nest (Sekiyama et al. 2018, "Profile-guided memory
// optimization for deep neural networks"). A bounded search over the order then removes most of
// what is left. memonger/arena.py is the readable reference and gives the same offsets.
#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "random.h"
#include "storage.h"

namespace memonger {
namespace storage {

namespace {

class Placer {
 public:
  Placer(const Blocks& blocks, const std::vector<int32_t>& members, int64_t unit) {
    for (int32_t id : members) {
      const Block& block = blocks.blocks[id];
      start_.push_back(block.start);
      end_.push_back(block.end);
      bytes_.push_back(RoundUp(block.bytes, unit));
    }
  }

  // The largest sum of living blocks, rounded: no arena is smaller.
  int64_t Bound(int32_t num_steps) const {
    std::vector<int64_t> change(num_steps + 2, 0);
    for (size_t i = 0; i < bytes_.size(); ++i) {
      change[start_[i]] += bytes_[i];
      change[end_[i] + 1] -= bytes_[i];
    }
    int64_t live = 0, most = 0;
    for (int64_t c : change) most = std::max(most, live += c);
    return most;
  }

  // Greedy orders, then changes of the best one, until it is within a thousandth of the bound or
  // takes no more than `wanted` bytes.
  int64_t Search(int64_t bound, int32_t effort, int64_t wanted, std::vector<int64_t>* offsets) {
    const int32_t n = static_cast<int32_t>(bytes_.size());
    const int64_t enough = std::max(bound + bound / 1024, wanted);
    std::vector<int32_t> order(n), best;
    int64_t least = -1;
    for (int kind = 0; kind < 4 && (least < 0 || least > enough); ++kind) {
      for (int32_t i = 0; i < n; ++i) order[i] = i;
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t a, int32_t b) { return Key(kind, a) > Key(kind, b); });
      const int64_t reached = Place(order, least);
      if (least >= 0 && reached >= least) continue;
      least = reached;
      best = order;
      *offsets = offset_;
    }
    const int64_t work = std::max<int64_t>(1, static_cast<int64_t>(n) * n);
    int64_t tries = n < 3 ? 0 : std::min<int64_t>(10 * int64_t{effort}, 1200000000 / work);
    Xorshift32 random;
    std::vector<int32_t> trial;
    int64_t current = least;
    if (tries > 0 && least > enough) Place(best, -1);
    while (tries-- > 0 && least > enough) {
      // Something that stands below the highest block in memory comes earlier in the order, or the
      // highest block itself.
      FindPile(current);
      const int32_t moved = pile_[random.Below(static_cast<uint32_t>(pile_.size()))];
      trial = best;
      const auto at = std::find(trial.begin(), trial.end(), moved);
      const auto to = trial.begin() + random.Below(static_cast<uint32_t>(at - trial.begin()) + 1);
      std::rotate(to, at, at + 1);
      kept_ = offset_;
      const int64_t reached = Place(trial, current);
      if (reached > current) {
        offset_ = kept_;
        continue;
      }
      best.swap(trial);
      current = reached;
      if (reached < least) {
        least = reached;
        *offsets = offset_;
      }
    }
    return least;
  }

 private:
  int64_t Length(int32_t i) const { return end_[i] - start_[i] + 1; }

  std::pair<int64_t, int64_t> Key(int kind, int32_t i) const {
    if (kind == 0) return {Length(i), bytes_[i]};
    if (kind == 1) return {bytes_[i], Length(i)};
    if (kind == 2) return {bytes_[i] * Length(i), 0};
    return {-start_[i], bytes_[i]};
  }

  // Each block at the lowest offset where nothing alive at the same time lies. Gives up beyond
  // `limit` (negative: none).
  int64_t Place(const std::vector<int32_t>& order, int64_t limit) {
    offset_.assign(bytes_.size(), 0);
    placed_.clear();  // by offset
    int64_t top = 0;
    for (int32_t i : order) {
      int64_t offset = 0;
      size_t at = placed_.size();
      for (size_t k = 0; k < placed_.size(); ++k) {
        const Placed& other = placed_[k];
        if (other.start > end_[i] || other.end < start_[i]) continue;
        if (other.offset - offset >= bytes_[i]) break;
        offset = std::max(offset, other.top);
      }
      const int64_t above = offset + bytes_[i];
      top = std::max(top, above);
      if (limit >= 0 && top > limit) return top;
      offset_[i] = offset;
      at = std::upper_bound(placed_.begin(), placed_.end(), offset,
                            [](int64_t value, const Placed& p) { return value < p.offset; }) -
           placed_.begin();
      placed_.insert(placed_.begin() + static_cast<std::ptrdiff_t>(at),
                     Placed{offset, above, start_[i], end_[i]});
    }
    return top;
  }

  // The first of the blocks that reach `top`, and all that lie below it while it lives.
  void FindPile(int64_t top) {
    pile_.clear();
    const int32_t n = static_cast<int32_t>(bytes_.size());
    int32_t highest = 0;
    while (offset_[highest] + bytes_[highest] != top) ++highest;
    for (int32_t i = 0; i < n; ++i)
      if (start_[i] <= end_[highest] && end_[i] >= start_[highest]) pile_.push_back(i);
  }

  struct Placed {
    int64_t offset, top;
    int32_t start, end;
  };
  std::vector<int32_t> start_, end_, pile_;
  std::vector<int64_t> bytes_, offset_, kept_;
  std::vector<Placed> placed_;
};

}  // namespace

void Arena(const Blocks& b, const Model& model, Assignment* result, int64_t wanted) {
  const size_t count = b.blocks.size();
  std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> groups;
  for (size_t i = 0; i < count; ++i) {
    groups[{b.blocks[i].pool, b.blocks[i].device}].push_back(static_cast<int32_t>(i));
  }
  result->buffer_of.assign(count, -1);
  result->offset_of.assign(count, 0);
  result->buffer_bytes.clear();
  std::vector<int32_t> inside;
  std::vector<int64_t> offsets;
  for (const Block& block : b.blocks)
    if (block.apart || block.end >= b.num_steps) wanted -= RoundUp(block.bytes, model.rounding);
  for (const auto& group : groups) {
    inside.clear();
    for (int32_t id : group.second) {
      if (b.blocks[id].apart || b.blocks[id].end >= b.num_steps) continue;
      inside.push_back(id);
    }
    if (!inside.empty()) {
      Placer placer(b, inside, model.alignment);
      const int64_t bytes = placer.Search(placer.Bound(b.num_steps), model.effort,
                                          groups.size() == 1 ? wanted : 0, &offsets);
      for (size_t k = 0; k < inside.size(); ++k) {
        result->buffer_of[inside[k]] = static_cast<int32_t>(result->buffer_bytes.size());
        result->offset_of[inside[k]] = offsets[k];
      }
      result->buffer_bytes.push_back(bytes);
    }
    for (int32_t id : group.second) {
      if (result->buffer_of[id] >= 0) continue;
      result->buffer_of[id] = static_cast<int32_t>(result->buffer_bytes.size());
      result->buffer_bytes.push_back(RoundUp(b.blocks[id].bytes, model.rounding));
    }
  }
  result->pool_bytes = 0;
  for (int64_t bytes : result->buffer_bytes) result->pool_bytes += bytes;
  result->printed_bytes = result->pool_bytes;
}

void Smallest(const Blocks& b, const Model& model, Assignment* result, int64_t wanted) {
  Arena(b, model, result, wanted);
  if (result->pool_bytes < LowerBound(b, model) || result->pool_bytes <= wanted) return;
  Assignment whole;
  Packer().Best(b, model, &whole);
  if (whole.pool_bytes <= result->pool_bytes) *result = whole;
}

int64_t ArenaBound(const Blocks& b, const Model& model) {
  std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> inside;
  int64_t bytes = 0;
  for (size_t i = 0; i < b.blocks.size(); ++i) {
    const Block& block = b.blocks[i];
    if (block.apart || block.end >= b.num_steps) {
      bytes += RoundUp(block.bytes, model.rounding);
    } else {
      inside[{block.pool, block.device}].push_back(static_cast<int32_t>(i));
    }
  }
  for (const auto& group : inside)
    bytes += Placer(b, group.second, model.alignment).Bound(b.num_steps);
  return bytes;
}

}  // namespace storage
}  // namespace memonger
