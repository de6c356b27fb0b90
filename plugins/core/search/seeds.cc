// Starting points that need no search: drop what is cheap to make again for its bytes, keep the
// values that cross the boundaries of a few segments, or both.
//
// The first is the usual "keep the outputs of convolutions, recompute the rest"; the second is
// the rule of Chen et al. 2016 for any number of segments. All are tried: a few hundred
// evaluations at most. Where nothing fits, cheap values are not kept between their uses in backward
// either: that takes the least memory, and a lot of time, which the search then removes.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/search/steps.h"

namespace memonger {

namespace {

// How many thresholds of seconds a byte are tried.
const size_t kMostThresholds = 16;
// Every how many-th of them is also the most time of a value that is dropped after each use in
// backward.
const size_t kTransientsEvery = 3;
// Without backward ops a seed drops what lies idle for one so many-th of the graph.
const int kLongGap = 10;

// Decides every gap that a seed may drop: those that lead into the backward ops, or, in graphs
// without backward ops, the long ones.
void LoadCheapSeed(Search* search, double time_per_byte, int segments, double transient,
                   bool all_variants) {
  Decisions& decisions = search->decisions;
  const std::vector<double>& seconds_per_byte = search->structure.seconds_per_byte();
  const Problem& problem = search->simulator->problem();
  const Simulator& simulator = *search->simulator;
  const bool has_backward = simulator.first_backward() < simulator.num_ops();
  std::vector<int> forward;
  for (int op = 0; op < simulator.num_ops(); ++op) {
    if (!simulator.IsBackward(op)) forward.push_back(op);
  }
  // Segment of each op, by equal shares of the forward bytes.
  std::vector<int> segment(search->simulator->num_ops(), segments);
  if (segments > 0) {
    double whole = 0, so_far = 0;
    for (int op : forward) {
      for (int tensor : problem.ops[op].implementations[0].outputs) {
        whole += static_cast<double>(problem.tensor_bytes[tensor]);
      }
    }
    for (int op : forward) {
      for (int tensor : problem.ops[op].implementations[0].outputs) {
        so_far += static_cast<double>(problem.tensor_bytes[tensor]);
      }
      segment[op] = std::min(segments - 1, static_cast<int>(so_far / (whole + 1) * segments));
    }
  }
  decisions.LoadDefaults();
  if (all_variants) UseFriendlyVariants(search);
  for (int decision = 0; decision < decisions.num_gaps(); ++decision) {
    const Gap& gap = search->simulator->gaps()[decision];
    const bool leads_back = has_backward
                                ? !simulator.IsBackward(gap.begin) && simulator.IsBackward(gap.end)
                                : gap.end - gap.begin > search->simulator->num_ops() / kLongGap;
    const bool for_a_moment = seconds_per_byte[gap.op] <= transient;
    if (for_a_moment && has_backward && simulator.IsBackward(gap.begin) && !gap.trailing) {
      decisions.Set(decision, kDropTransient);
    }
    if (!leads_back || seconds_per_byte[gap.op] > time_per_byte) continue;
    const bool crosses = segments > 0 && segment[gap.begin] != segment[gap.op];
    if (gap.trailing) {
      // What crosses a boundary is where the segment's clones start from.
      if (crosses) decisions.Set(decision, kKeep);
      continue;
    }
    if (!crosses) decisions.Set(decision, for_a_moment ? kDropTransient : kDropThenRetain);
  }
  decisions.Commit();
}

}  // namespace

void UseFriendlyVariants(Search* search, double most_added_s) {
  for (int variant : search->structure.friendly_variants()) {
    if (search->structure.TimeAdded(variant) <= most_added_s) {
      search->decisions.Set(search->decisions.variant(variant), 1);
    }
  }
}

void TrySeeds(Search* search, bool frugal, int64_t work_end) {
  Target& target = search->target;
  const std::vector<double>& seconds_per_byte = search->structure.seconds_per_byte();
  if (!search->Has(kSeeds)) return;
  std::vector<double> thresholds;
  for (const Gap& gap : search->simulator->gaps()) thresholds.push_back(seconds_per_byte[gap.op]);
  std::sort(thresholds.begin(), thresholds.end());
  thresholds.erase(std::unique(thresholds.begin(), thresholds.end()), thresholds.end());
  if (thresholds.empty()) return;
  std::vector<double> tried;
  for (size_t i = 0; i < std::min(kMostThresholds, thresholds.size()); ++i) {
    tried.push_back(
        thresholds[(i + 1) * thresholds.size() / std::min(kMostThresholds, thresholds.size()) - 1]);
  }
  const int largest =
      std::max(2, 2 * static_cast<int>(std::sqrt(search->simulator->first_backward())));
  const double endless = std::numeric_limits<double>::infinity();
  std::vector<double> transients;
  if (!frugal) transients.push_back(-1);
  for (size_t i = 0; frugal && i < tried.size(); i += kTransientsEvery)
    transients.push_back(tried[i]);
  for (double transient : transients) {
    for (int segments = 0; segments <= largest; segments = segments ? 2 * segments : 2) {
      for (double threshold : tried) {
        if (search->effort.OutOf(work_end)) return;
        for (int variants = 0; variants < (search->decisions.num_variants() ? 2 : 1); ++variants) {
          LoadCheapSeed(search, threshold, segments, transient, variants != 0);
          target.Offer(target.Evaluate(target.best().feasible ? target.best().cost : endless));
        }
      }
    }
    if (target.best().feasible) return;
  }
}

}  // namespace memonger
