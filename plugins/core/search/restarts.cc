// Which search runs when, and how the pool of a storage assignment comes into it.
#include "core/search/restarts.h"

#include <algorithm>
#include <utility>

#include "core/search/live.h"

namespace memonger {

namespace {

// Share of the unplanned time that an overflow of the unplanned peak costs at first; walks adjust
// it.
const double kFirstWeight = 0.05;
// Share of the budget whose excess costs two recomputations, at first.
const double kDearExcess = 0.01;
// The share of the work until which a plan that does not fit whole buffers is repaired.
const double kRepairPool = 0.2;
// The share of the work until which it is pruned.
const double kPrunePool = 0.3;
// The share of the work that a walk leaves for the pruning of its answer.
const double kPruneWalk = 0.05;
// The budget falls by one so many-th more than what is missing, lest the next plan just miss it.
const int64_t kMargin = 2000;

// Goes on from the best so far, with the pool of whole buffers as what has to fit.
void SearchPool(Search* search, int64_t work_end) {
  Target& target = search->target;
  Decisions& decisions = search->decisions;
  const WorkShare share(search->effort.Spent(), work_end);
  const Solution live = target.best();
  target.Forget();
  target.MeasurePool();
  // One number that is too large, where the live search adds up many.
  search->overflow_weight =
      2 * target.Unit() / (kDearExcess * static_cast<double>(target.budget_bytes()));
  Outcome current;
  for (const Solution* start : {&search->options.warm, &live}) {
    decisions.Load(*start);
    current = target.Evaluate();
    target.Offer(current);
  }
  if (!target.best().feasible) {
    decisions.Load(live);
    if (Repair(search, &current, share.Until(kRepairPool)))
      Prune(search, &current, share.Until(kPrunePool));
    target.Offer(current);
  }
  // Where annealing starts that only mends what does not fit whole buffers, in mean costs of one
  // recomputation.
  const double kMend = 0.3;
  const Temperature rounds[] = {{kMend, 0.01}, {kMend, 0.01}, {0.1, 0.005}};
  const double shares[] = {0.6, 0.85, 1.0};
  for (int round = 0; round < 3 && !search->effort.OutOf(work_end); ++round) {
    AnnealAndPrune(search, rounds[round], share, shares[round], kPruneWalk);
  }
}

// A pool takes little more than the live bytes: the live search, with a smaller budget as long as
// its answer does not quite fit.
void SearchShrinking(Search* search, int64_t work_end) {
  Target& target = search->target;
  const WorkShare share(search->effort.Spent(), work_end);
  const int64_t budget = target.budget_bytes();
  const double shares[] = {0.6, 0.75, 0.9, 1.0};
  Solution smallest, warm = search->options.warm;
  int64_t live_budget = budget;
  for (int round = 0; round < 4 && !search->effort.OutOf(work_end); ++round) {
    target.set_live_budget(live_budget);
    target.Forget();
    search->effort.PauseAt(shares[round]);
    SearchLive(search, warm, share.Until(shares[round]));
    search->effort.Resume();
    Solution found = target.best();
    search->decisions.Load(found);
    found.pool = target.ExactPool(budget);
    if (found.pool < 0) break;
    target.CountExactPool();
    const bool fits_live = found.feasible;
    found.feasible = found.pool <= budget;
    if (!smallest.known || found.feasible || found.pool < smallest.pool) smallest = found;
    if (found.feasible || !fits_live) break;
    live_budget -= (found.pool - budget) + budget / kMargin;
    warm = found;
  }
  target.set_live_budget(budget);
  if (smallest.known) target.set_best(smallest);
}

// The least memory: whenever a plan fits, the budget falls below what it takes. Whole buffers are
// estimated, not packed.
void SearchSmallest(Search* search, int64_t work_end) {
  Target& target = search->target;
  Decisions& decisions = search->decisions;
  const WorkShare share(search->effort.Spent(), work_end);
  const int64_t budget = target.budget_bytes();
  const Temperature rounds[] = {{3, 0.01}, {0.5, 0.01}, {0.2, 0.005}};
  const double shares[] = {0.6, 0.8, 1.0}, steps[] = {0.01, 0.01, 1e-4};
  if (target.has_whole_buffers()) target.MeasurePool();
  decisions.Load(search->options.warm);
  const Outcome begun = target.Evaluate();
  if (begun.valid && begun.host_overflow <= 0) target.KeepSmallest(begun);
  for (int round = 0; round < 3 && target.best().known && !search->effort.OutOf(work_end);
       ++round) {
    decisions.Load(target.best());
    target.set_step_down(steps[round]);
    target.LowerBudget();
    Anneal(search, target.Evaluate(), rounds[round], share.Until(shares[round]));
  }
  target.set_budget(budget);
  Solution best = target.best();
  decisions.Load(best);
  const int64_t pool = target.ExactPool();
  if (pool < 0) return;
  if (target.has_meter()) best.pool = pool;
  best.feasible = (target.has_meter() ? pool : best.peak) <= budget;
  target.set_best(best);
}

}  // namespace

Answer RunSearch(Simulator* simulator, const SearchOptions& options, PoolMeter* meter,
                 PollFunction poll) {
  Search search(simulator, options, meter, std::move(poll));
  Target& target = search.target;
  search.decisions.LoadDefaults();
  const Outcome unplanned = target.Evaluate();
  target.set_base_cost(std::max(unplanned.cost, 1e-300));
  search.overflow_weight =
      kFirstWeight * target.base_cost() / static_cast<double>(std::max<int64_t>(1, unplanned.peak));
  search.effort.Begin();
  const int64_t begin = simulator->work(), work = options.work_limit;
  if (options.smallest) {
    SearchSmallest(&search, begin + work);
  } else if (!target.has_meter()) {
    SearchLive(&search, options.warm, begin + work);
  } else {
    // What does not quite fit an arena needs a little less memory; whole buffers are another
    // measure.
    SearchShrinking(&search, begin + (target.has_whole_buffers() ? work / 2 : work));
    if (target.has_whole_buffers()) SearchPool(&search, begin + work);
  }
  search.decisions.Load(target.best());
  return {target.best(), search.effort.reason()};
}

}  // namespace memonger
