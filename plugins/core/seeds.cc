// Starting points that need no search: drop what is cheap to make again for its bytes, keep the
// values that cross the boundaries of a few segments, or both.
//
// The first is the usual "keep the outputs of convolutions, recompute the rest"; the second is
// the rule of Chen et al. 2016 for any number of segments. All are tried: a few hundred
// evaluations at most. Where nothing fits, cheap values are not kept between their uses in backward
// either: that takes the least memory, and a lot of time, which the search then removes.
#include <algorithm>
#include <cmath>

#include "core/search.h"

namespace memonger {

namespace {

// Of each op: time to make a byte.
std::vector<double> SecondsPerByte(const Problem& problem) {
  std::vector<double> result;
  for (const Op& op : problem.ops) {
    int64_t bytes = 0;
    for (int tensor : op.implementations[0].outputs) bytes += problem.tensor_bytes[tensor];
    result.push_back(op.implementations[0].time / static_cast<double>(std::max<int64_t>(1, bytes)));
  }
  return result;
}

// What a variant adds to the time of the step.
double TimeAdded(const Problem& problem, const Variant& variant) {
  double added = 0;
  for (const auto& choice : variant.choices) {
    const std::vector<Implementation>& ways = problem.ops[choice.first].implementations;
    added += (ways[choice.second].runs ? ways[choice.second].time : 0) - ways[0].time;
  }
  return added;
}

}  // namespace

// All variants that do not shut each other out, those that save the most time first: most save
// memory as well, and single moves would take long to find them all. Not those that add more than
// so much time.
void Search::SetAllVariants(double most_added) {
  const Problem& problem = simulator_->problem();
  if (friendly_variants_.empty()) {
    std::vector<std::pair<double, int>> order;
    for (int v = 0; v < num_variants_; ++v) {
      order.emplace_back(TimeAdded(problem, problem.variants[v]), v);
    }
    std::sort(order.begin(), order.end());
    std::vector<char> shut_out(num_variants_, 0);
    for (const auto& next : order) {
      if (shut_out[next.second]) continue;
      friendly_variants_.push_back(next.second);
      for (int other : problem.variants[next.second].conflicts) shut_out[other] = 1;
    }
  }
  for (int variant : friendly_variants_) {
    if (TimeAdded(problem, problem.variants[variant]) <= most_added) Set(num_gaps_ + variant, 1);
  }
}

// Decides every gap that a seed may drop: those that lead into the backward ops, or, in graphs
// without backward ops, those longer than a tenth of the graph.
void Search::LoadCheapSeed(double time_per_byte, int segments, double transient,
                           bool all_variants) {
  const Problem& problem = simulator_->problem();
  const int first_backward = simulator_->first_backward();
  const bool has_backward = first_backward < simulator_->num_ops();
  if (seconds_per_byte_.empty()) seconds_per_byte_ = SecondsPerByte(problem);
  // Segment of each op, by equal shares of the forward bytes.
  std::vector<int> segment(simulator_->num_ops(), segments);
  if (segments > 0) {
    double whole = 0, so_far = 0;
    for (int op = 0; op < first_backward; ++op) {
      for (int tensor : problem.ops[op].implementations[0].outputs) {
        whole += static_cast<double>(problem.tensor_bytes[tensor]);
      }
    }
    for (int op = 0; op < first_backward; ++op) {
      for (int tensor : problem.ops[op].implementations[0].outputs) {
        so_far += static_cast<double>(problem.tensor_bytes[tensor]);
      }
      segment[op] = std::min(segments - 1, static_cast<int>(so_far / (whole + 1) * segments));
    }
  }
  LoadDefaults();
  if (all_variants) SetAllVariants();
  for (int decision = 0; decision < num_gaps_; ++decision) {
    const Gap& gap = simulator_->gaps()[decision];
    const bool leads_back = has_backward ? gap.begin < first_backward && gap.end >= first_backward
                                         : gap.end - gap.begin > simulator_->num_ops() / 10;
    const bool for_a_moment = seconds_per_byte_[gap.op] <= transient;
    if (for_a_moment && has_backward && gap.begin >= first_backward && !gap.trailing) {
      Set(decision, kDropTransient);
    }
    if (!leads_back || seconds_per_byte_[gap.op] > time_per_byte) continue;
    const bool crosses = segments > 0 && segment[gap.begin] != segment[gap.op];
    if (gap.trailing) {
      // What crosses a boundary is where the segment's clones start from.
      if (crosses) Set(decision, kKeep);
      continue;
    }
    if (!crosses) Set(decision, for_a_moment ? kDropTransient : kDropThenRetain);
  }
  Commit();
}

void Search::TrySeeds(bool frugal, int64_t work_end) {
  if (!Has(kSeeds)) return;
  if (seconds_per_byte_.empty()) seconds_per_byte_ = SecondsPerByte(simulator_->problem());
  std::vector<double> thresholds;
  for (const Gap& gap : simulator_->gaps()) thresholds.push_back(seconds_per_byte_[gap.op]);
  std::sort(thresholds.begin(), thresholds.end());
  thresholds.erase(std::unique(thresholds.begin(), thresholds.end()), thresholds.end());
  if (thresholds.empty()) return;
  const size_t most = 16;
  std::vector<double> tried;
  for (size_t i = 0; i < std::min(most, thresholds.size()); ++i) {
    tried.push_back(
        thresholds[(i + 1) * thresholds.size() / std::min(most, thresholds.size()) - 1]);
  }
  const int largest = std::max(2, 2 * static_cast<int>(std::sqrt(simulator_->first_backward())));
  const double endless = std::numeric_limits<double>::infinity();
  std::vector<double> transients;
  if (!frugal) transients.push_back(-1);
  for (size_t i = 0; frugal && i < tried.size(); i += 3) transients.push_back(tried[i]);
  for (double transient : transients) {
    for (int segments = 0; segments <= largest; segments = segments ? 2 * segments : 2) {
      for (double threshold : tried) {
        if (OutOf(work_end)) return;
        for (int variants = 0; variants < (num_variants_ ? 2 : 1); ++variants) {
          LoadCheapSeed(threshold, segments, transient, variants != 0);
          Offer(Evaluate(best_.feasible ? best_.cost : endless));
        }
      }
    }
    if (best_.feasible) return;
  }
}

}  // namespace memonger
