// Which search runs when, and how the pool of a storage assignment comes into it.
#include <algorithm>

#include "core/search.h"

namespace memonger {

namespace {

// Graphs above this number of gaps are not searched one decision at a time from the start.
const int kManyGaps = 1500;
// Writing the steps down and assigning storage for them takes as long as simulating so many times.
const int kExactWork = 100;
// Where annealing starts, in units of Search::Unit(): the first walk, the second, and those that
// only mend what does not fit whole buffers.
const double kHot = 6, kWarm = 0.5, kMend = 0.3;
// For the least memory: where annealing starts.
const double kHotSmallest = 3;

}  // namespace

void Search::SearchLive(int64_t work_end) {
  const int64_t begin = Spent();
  const auto until = [&](double share) {
    return begin + static_cast<int64_t>(share * static_cast<double>(work_end - begin));
  };
  const bool many = num_gaps_ > kManyGaps;
  const bool grouped = Has(kGroups) && simulator_->first_backward() < simulator_->num_ops();
  LoadDefaults();
  Outcome current = Evaluate();
  Offer(current);
  Load(options_.warm);
  current = Evaluate();
  Offer(current);
  // A plan just above the budget is repaired before seeds that fit, at any price, take its place.
  const bool misses = current.valid && !Feasible(current);
  if (misses && grouped && many) {
    FitGroups(&current, true, until(0.3), until(0.5));
  } else if (misses && Repair(&current, until(0.1))) {
    Prune(&current, until(0.15));
    Offer(current);
  }
  TrySeeds(false, until(many ? 0.1 : 0.03));
  if (grouped) {
    // Groups of values, with the variants that cost no time; then of variants as well.
    for (int start = 0; start < (many || num_variants_ == 0 ? 1 : 2); ++start) {
      LoadDefaults();
      SetAllVariants(0);
      Commit();
      const int64_t share = (work_end - begin) / 8;
      FitGroups(&current, start == 1, Spent() + share, Spent() + share + share / 4);
    }
  }
  if (!many) {
    // Repair of the unplanned step, of it with all variants, then of the best seed.
    const double ends[] = {0.05, 0.1, 0.14};
    const double late = grouped && !best_.feasible ? 0.2 : 0;  // groups were not enough
    for (int start = 0; start < 3 && !OutOf(until(0.15 + late)); ++start) {
      if (start == 1 && num_variants_ == 0) continue;
      if (start < 2)
        LoadDefaults();
      else
        Load(best_);
      if (start == 1) SetAllVariants();
      Commit();
      if (Repair(&current, until(ends[start] + late))) Prune(&current, until(0.15 + late));
      Offer(current);
    }
    if (options_.crossover) {
      Crossover(until(0.95));
      Load(best_);
      current = Evaluate();
      if (Feasible(current)) SwapMoves(&current, work_end);
      if (Feasible(current)) Prune(&current, work_end);
      Offer(current);
      return;
    }
    Iterate(until(0.15));
  }
  // Annealing from the best, hot and warm in turn; what it finds is pruned. A long hot walk is
  // worth most at deep cuts, whose good plans are far from what repairs find.
  const double first = options_.heat > 0 ? options_.heat : kHot;
  const Temperature rounds[] = {{first, 0.01}, {kWarm, 0.01}, {0.2, 0.005}};
  const double shares[] = {0.85, 0.9, 0.94};
  for (int round = 0; round < 3 && !OutOf(work_end); ++round) {
    if (round == 1 && !best_.feasible) TrySeeds(true, until((shares[0] + shares[1]) / 2));
    Load(best_);
    current = Evaluate();
    Anneal(current, rounds[round], until(shares[round] - 0.01));
    Load(best_);
    current = Evaluate();
    if (Feasible(current)) Prune(&current, until(shares[round]));
    Offer(current);
  }
  if (!many) Iterate(work_end);
}

// Measures the exact pool of the current decisions and keeps them when they are the best so far.
void Search::OfferPool(const Outcome& outcome) {
  if (best_.feasible && outcome.cost >= best_.cost) return;
  const double estimate = layers_.Measure(simulator_).bytes;
  Trace trace;
  const Outcome written = simulator_->EvaluateInto(&trace);
  const int64_t exact = meter_->Exact(trace);
  simulator_->AddWork(kExactWork * simulator_->num_steps());
  if (estimate > 0) slack_ += 0.25 * (static_cast<double>(exact) / estimate - slack_);
  const int64_t pool = exact + simulator_->bytes_outside_pool();
  const bool feasible = pool <= options_.budget_bytes;
  const bool better = !best_.known || feasible || (!best_.feasible && pool < best_.pool);
  if (!better) return;
  best_ = Snapshot(written);
  best_steps_ = simulator_->num_steps();
  best_.pool = pool;
  best_.feasible = feasible;
  least_overflow_ = static_cast<double>(std::max<int64_t>(0, pool - options_.budget_bytes));
}

// Goes on from the best so far, with the pool of whole buffers as what has to fit.
void Search::SearchPool(const Solution& warm, int64_t work_end) {
  const int64_t begin = Spent();
  const auto until = [&](double share) {
    return begin + static_cast<int64_t>(share * static_cast<double>(work_end - begin));
  };
  const Solution live = best_;
  best_ = Solution();
  pool_mode_ = true;
  // One number that is too large, where the live search adds up many.
  weight_ = 2 * Unit() / (0.01 * static_cast<double>(options_.budget_bytes));
  Outcome current;
  for (const Solution* start : {&warm, &live}) {
    Load(*start);
    current = Evaluate();
    Offer(current);
  }
  if (!best_.feasible) {
    Load(live);
    if (Repair(&current, until(0.2))) Prune(&current, until(0.3));
    Offer(current);
  }
  const Temperature rounds[] = {{kMend, 0.01}, {kMend, 0.01}, {0.1, 0.005}};
  const double shares[] = {0.6, 0.85, 1.0};
  for (int round = 0; round < 3 && !OutOf(work_end); ++round) {
    Load(best_);
    current = Evaluate();
    Anneal(current, rounds[round], until(shares[round] - 0.05));
    Load(best_);
    current = Evaluate();
    if (Feasible(current)) Prune(&current, until(shares[round]));
    Offer(current);
  }
}

// A pool takes little more than the live bytes: the live search, with a smaller budget as long as
// its answer does not quite fit.
void Search::SearchShrinking(int64_t work_end) {
  const int64_t begin = Spent(), budget = options_.budget_bytes;
  const double shares[] = {0.6, 0.75, 0.9, 1.0};
  Solution smallest;
  int64_t target = budget;
  for (int round = 0; round < 4 && !OutOf(work_end); ++round) {
    simulator_->set_budget(target);
    best_ = Solution();
    pause_at_s_ = shares[round] * options_.time_limit_s;
    SearchLive(begin + static_cast<int64_t>(shares[round] * static_cast<double>(work_end - begin)));
    paused_ = false;
    Load(best_);
    Trace trace;
    if (!simulator_->EvaluateInto(&trace).valid) break;
    best_.pool = meter_->Exact(trace, budget - simulator_->bytes_outside_pool()) +
                 simulator_->bytes_outside_pool();
    simulator_->AddWork(kExactWork * simulator_->num_steps());
    const bool was_feasible = best_.feasible;
    best_.feasible = best_.pool <= budget;
    if (!smallest.known || best_.feasible || best_.pool < smallest.pool) smallest = best_;
    if (best_.feasible || !was_feasible) break;
    target -= (best_.pool - budget) + budget / 2000;
    options_.warm = best_;
  }
  simulator_->set_budget(budget);
  if (smallest.known) best_ = smallest;
}

// The least memory: whenever a plan fits, the budget falls below what it takes. Whole buffers are
// estimated, not packed.
void Search::SearchSmallest(int64_t work_end) {
  const int64_t begin = Spent(), budget = options_.budget_bytes;
  const Temperature rounds[] = {{kHotSmallest, 0.01}, {kWarm, 0.01}, {0.2, 0.005}};
  const double shares[] = {0.6, 0.8, 1.0}, steps[] = {0.01, 0.01, 1e-4};
  pool_mode_ = meter_ && meter_->kind() != storage::Kind::kArena;
  Load(options_.warm);
  const Outcome begun = Evaluate();
  if (begun.valid) KeepSmallest(begun);
  for (int round = 0; round < 3 && best_.known && !OutOf(work_end); ++round) {
    Load(best_);
    step_down_ = steps[round];
    LowerBudget();
    Anneal(Evaluate(), rounds[round],
           begin + static_cast<int64_t>(shares[round] * static_cast<double>(work_end - begin)));
  }
  options_.budget_bytes = budget;
  simulator_->set_budget(budget);
  Load(best_);
  Trace trace;
  if (!simulator_->EvaluateInto(&trace).valid) return;
  if (meter_) best_.pool = meter_->Exact(trace) + simulator_->bytes_outside_pool();
  best_.feasible = (meter_ ? best_.pool : best_.peak) <= budget;
}

// What fits is the smallest so far, for the budget is below what that one took.
void Search::KeepSmallest(const Outcome& outcome) {
  best_ = Snapshot(outcome);
  best_steps_ = simulator_->num_steps();
  LowerBudget();
}

void Search::LowerBudget() {
  const double less = step_down_ * static_cast<double>(best_.peak);
  options_.budget_bytes = best_.peak - std::max<int64_t>(1, static_cast<int64_t>(less));
  simulator_->set_budget(options_.budget_bytes);
}

Solution Search::Run() {
  LoadDefaults();
  const Outcome unplanned = Evaluate();
  base_cost_ = std::max(unplanned.cost, 1e-300);
  weight_ = 0.05 * base_cost_ / static_cast<double>(std::max<int64_t>(1, unplanned.peak));
  const int64_t begin = simulator_->work(), work = options_.work_limit;
  work_begin_ = begin;
  if (options_.smallest) {
    SearchSmallest(begin + work);
  } else if (!meter_) {
    SearchLive(begin + work);
  } else {
    // What does not quite fit an arena needs a little less memory; whole buffers are another
    // measure.
    const bool arena = meter_->kind() == storage::Kind::kArena;
    const Solution warm = options_.warm;
    SearchShrinking(begin + (arena ? work : work / 2));
    if (!arena) SearchPool(warm, begin + work);
  }
  Load(best_);
  return best_;
}

}  // namespace memonger
