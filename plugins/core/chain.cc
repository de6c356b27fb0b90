#include "core/chain.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace memonger {

namespace {

// Seconds of what cannot be.
const float kNever = std::numeric_limits<float>::infinity();

// Where the first range of a choice goes on: a trade-off of a segment, or a checkpoint.
struct Pick {
  int segment = -1, tradeoff = -1;
  int checkpoint = -1;
};

// The best of a range for each number of levels.
struct Range {
  std::vector<float> extra;
  std::vector<Pick> pick;
};

class Program {
 public:
  Program(const Chain& chain, int64_t budget_bytes, int levels)
      : chain_(chain),
        levels_(levels),
        unit_(static_cast<double>(std::max<int64_t>(1, budget_bytes)) / levels),
        count_(static_cast<int>(chain.boundary_bytes.size())),
        from_(count_),
        unit_segment_(count_),
        nested_(static_cast<size_t>(count_) * (count_ + 1)),
        first_(count_) {
    for (size_t s = 0; s < chain.segments.size(); ++s) {
      const ChainSegment& segment = chain.segments[s];
      from_[segment.begin].push_back(static_cast<int>(s));
      if (segment.end == segment.begin + 1) unit_segment_[segment.begin] = static_cast<int>(s);
    }
    forward_to_.push_back(0);
    for (int i = 0; i < count_; ++i) {
      forward_to_.push_back(forward_to_.back() + chain.segments[unit_segment_[i]].forward);
    }
  }

  ChainPlan Solve() {
    for (int end = 1; end <= count_; ++end) {
      for (int begin = end - 1; begin >= 0; --begin) Fill(begin, end, false);
    }
    for (int begin = count_ - 1; begin >= 0; --begin) Fill(begin, count_, true);
    ChainPlan plan;
    plan.stored.assign(count_, -2);
    if (first_[0].extra[levels_] == kNever) return plan;
    plan.feasible = true;
    plan.extra = first_[0].extra[levels_];
    Trace(0, count_, levels_, -1, &plan);
    return plan;
  }

 private:
  // The segments from `begin` to `end`, whose gradient is at hand: nested; or from `begin` to the
  // end of the chain with the first run of forward: first. What lies at `begin` is not counted.
  Range& At(int begin, int end, bool first) {
    return first ? first_[begin] : nested_[static_cast<size_t>(begin) * (count_ + 1) + end];
  }
  int Levels(int64_t bytes) const {
    const double levels = std::ceil(static_cast<double>(bytes) / unit_ - 1e-9);
    return levels > levels_ ? levels_ + 1 : static_cast<int>(levels);
  }

  // `extra + rest` where `taken` levels go and at least `least` are there.
  void Offer(Range* range, double extra, const Range* rest, int taken, const Range* other,
             int least, const Pick& pick) {
    for (int level = std::max(least, taken); level <= levels_; ++level) {
      float value = static_cast<float>(extra);
      if (rest) value += rest->extra[level - taken];
      if (other) value += other->extra[level];
      if (value < range->extra[level]) {
        range->extra[level] = value;
        range->pick[level] = pick;
      }
    }
  }

  void Fill(int begin, int end, bool first) {
    Range& range = At(begin, end, first);
    range.extra.assign(levels_ + 1, kNever);
    range.pick.assign(levels_ + 1, Pick());
    const int64_t gradient = first ? 0 : chain_.segments[unit_segment_[end - 1]].gradient;
    int64_t transient = 0;
    for (int middle = begin + 1; middle < end; ++middle) {
      const int before = middle - 1;
      transient = std::max(transient, chain_.segments[unit_segment_[before]].transient_peak +
                                          (before > begin ? chain_.boundary_bytes[before] : 0));
      Pick pick;
      pick.checkpoint = middle;
      Offer(&range, first ? 0 : forward_to_[middle] - forward_to_[begin], &At(middle, end, first),
            Levels(chain_.boundary_bytes[middle]), &At(begin, middle, false),
            Levels(transient + gradient), pick);
    }
    for (int s : from_[begin]) {
      const ChainSegment& segment = chain_.segments[s];
      if (segment.end > end) continue;
      for (size_t t = 0; t < segment.tradeoffs.size(); ++t) {
        const ChainTradeoff& tradeoff = segment.tradeoffs[t];
        Pick pick;
        pick.segment = s;
        pick.tradeoff = static_cast<int>(t);
        if (segment.end == end) {
          // The last range of a nested one starts from its input; the end of the chain is made
          // once.
          if (tradeoff.nothing_kept != first) {
            Offer(&range, tradeoff.extra, nullptr, 0, nullptr, Levels(tradeoff.peak), pick);
          }
        } else if (!tradeoff.nothing_kept) {
          const double again = first ? 0 : forward_to_[segment.end] - forward_to_[begin];
          Offer(&range, again + tradeoff.extra, &At(segment.end, end, first),
                Levels(tradeoff.kept + chain_.boundary_bytes[segment.end]), nullptr,
                Levels(tradeoff.peak), pick);
        }
      }
    }
  }

  void Trace(int begin, int end, int level, int before, ChainPlan* plan) {
    const bool first = before == -1;
    const Pick pick = At(begin, end, first).pick[level];
    if (pick.checkpoint >= 0) {
      const int middle = pick.checkpoint;
      plan->stored[middle] = before;
      Trace(middle, end, level - Levels(chain_.boundary_bytes[middle]), before, plan);
      Trace(begin, middle, level, middle, plan);
      return;
    }
    const ChainSegment& segment = chain_.segments[pick.segment];
    plan->placed.push_back({pick.segment, pick.tradeoff, before});
    if (segment.end == end) return;
    plan->stored[segment.end] = before;
    const ChainTradeoff& tradeoff = segment.tradeoffs[pick.tradeoff];
    const int64_t held = tradeoff.kept + chain_.boundary_bytes[segment.end];
    Trace(segment.end, end, level - Levels(held), before, plan);
  }

  const Chain& chain_;
  const int levels_;
  const double unit_;
  const int count_;
  std::vector<std::vector<int>> from_;  // segments that begin at each boundary
  std::vector<int> unit_segment_;
  std::vector<double> forward_to_;
  std::vector<Range> nested_, first_;
};

}  // namespace

ChainPlan SolveChain(const Chain& chain, int64_t budget_bytes, int levels) {
  return Program(chain, budget_bytes, levels).Solve();
}

}  // namespace memonger
