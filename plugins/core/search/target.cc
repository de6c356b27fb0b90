#include "core/search/target.h"

#include <algorithm>

namespace memonger {

namespace {

// Writing the steps down and assigning storage for them takes as long as simulating so many times.
const int kExactWork = 100;
// How much of an error of the estimate its correction takes over.
const double kLearning = 0.25;

}  // namespace

Target::Target(Simulator* simulator, Decisions* decisions, PoolMeter* meter, Random* random,
               int64_t budget_bytes)
    : simulator_(simulator),
      decisions_(decisions),
      meter_(meter),
      layers_(simulator->problem()),
      random_(random) {
  set_budget(budget_bytes);
}

void Target::set_budget(int64_t bytes) {
  budget_bytes_ = bytes;
  simulator_->set_budget(bytes);
}

Outcome Target::Evaluate(double cost_limit) {
  Outcome outcome = simulator_->Evaluate(cost_limit);
  if (!pool_mode_ || !outcome.valid) return outcome;
  simulator_->AddWork(simulator_->num_steps() / 2);
  const LayerMeter::Estimate& estimate = layers_.Measure(simulator_);
  const double pool =
      slack_ * estimate.bytes + static_cast<double>(simulator_->bytes_outside_pool());
  const double excess = pool - static_cast<double>(budget_bytes_);
  outcome.peak = static_cast<int64_t>(pool);
  outcome.overflow = excess > 0 ? excess * (0.5 + estimate.crowding / estimate.bytes) : 0;
  outcome.overflow += outcome.host_overflow;
  return outcome;
}

int Target::WorstOp(const Outcome& outcome) {
  if (!pool_mode_) return outcome.peak_op;
  return simulator_->stage_of_step(layers_.CrowdedStep(random_));
}

double Target::Unit() const {
  const double added = best_.cost - base_cost_;
  const int reruns = best_steps_ - simulator_->num_ops();
  if (added > 0 && reruns > 0) return added / reruns;
  return base_cost_ / simulator_->num_ops();
}

Solution Target::Current(const Outcome& outcome) const {
  Solution current = decisions_->Snapshot();
  current.cost = outcome.cost;
  current.peak = outcome.peak;
  current.feasible = Feasible(outcome);
  return current;
}

void Target::Keep(const Outcome& outcome) {
  best_ = Current(outcome);
  best_steps_ = simulator_->num_steps();
}

void Target::Offer(const Outcome& outcome) {
  if (!outcome.valid) return;
  if (pool_mode_) return OfferPool(outcome);
  const bool feasible = outcome.overflow <= 0;
  bool better;
  if (!best_.known) {
    better = true;
  } else if (feasible != best_.feasible) {
    better = feasible;
  } else if (feasible) {
    better = outcome.cost < best_.cost || (outcome.cost == best_.cost && outcome.peak < best_.peak);
  } else {
    better = outcome.overflow < least_overflow_;
  }
  if (!better) return;
  least_overflow_ = outcome.overflow;
  Keep(outcome);
}

// Measures the exact pool of the current decisions and keeps them where they are the best so far.
void Target::OfferPool(const Outcome& outcome) {
  if (best_.feasible && outcome.cost >= best_.cost) return;
  const double estimate = layers_.Measure(simulator_).bytes;
  Trace trace;
  const Outcome written = simulator_->EvaluateInto(&trace);
  const int64_t exact = meter_->Exact(trace);
  CountExactPool();
  if (estimate > 0) slack_ += kLearning * (static_cast<double>(exact) / estimate - slack_);
  const int64_t pool = exact + simulator_->bytes_outside_pool();
  const bool feasible = pool <= budget_bytes_ && written.host_overflow <= 0;
  const bool better = !best_.known || feasible || (!best_.feasible && pool < best_.pool);
  if (!better) return;
  Keep(written);
  best_.pool = pool;
  best_.feasible = feasible;
  least_overflow_ =
      static_cast<double>(std::max<int64_t>(0, pool - budget_bytes_)) + written.host_overflow;
}

int64_t Target::ExactPool(int64_t wanted) {
  Trace trace;
  if (!simulator_->EvaluateInto(&trace).valid) return -1;
  if (!meter_) return 0;
  const int64_t outside = simulator_->bytes_outside_pool();
  return meter_->Exact(trace, wanted ? wanted - outside : 0) + outside;
}

void Target::CountExactPool() { simulator_->AddWork(kExactWork * simulator_->num_steps()); }

void Target::KeepSmallest(const Outcome& outcome) {
  Keep(outcome);
  LowerBudget();
}

void Target::LowerBudget() {
  const double less = step_down_ * static_cast<double>(best_.peak);
  set_budget(best_.peak - std::max<int64_t>(1, static_cast<int64_t>(less)));
}

}  // namespace memonger
