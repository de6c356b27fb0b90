#include "core/search.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace memonger {

namespace {

// Share of the time limit in which the clock decides nothing.
const double kFreeOfClock = 0.2;

}  // namespace

Search::Search(Simulator* simulator, const SearchOptions& options, PoolMeter* meter,
               PollFunction poll)
    : simulator_(simulator),
      options_(options),
      meter_(meter),
      layers_(simulator->problem()),
      poll_(std::move(poll)),
      random_(options.seed),
      num_gaps_(static_cast<int>(simulator->gaps().size())),
      num_variants_(static_cast<int>(simulator->problem().variants.size())),
      changed_place_(num_gaps_ + num_variants_, -1),
      start_(std::chrono::steady_clock::now()) {
  simulator_->set_budget(options.budget_bytes);
  // A simulator may have served another search before.
  for (int v = 0; v < num_variants_; ++v) simulator_->set_variant(v, false);
  for (int gap = 0; gap < num_gaps_; ++gap) {
    simulator_->set_choice(gap, static_cast<Choice>(Default(gap)));
    simulator_->set_advance(gap, -1);
  }
  // Ops that do the same work (same time and bytes) in repeated blocks are moved together.
  std::map<std::tuple<double, int64_t, int, bool>, int> ids;
  for (int gap = 0; gap < num_gaps_; ++gap) {
    const Gap& g = simulator_->gaps()[gap];
    if (g.begin < simulator_->first_backward() && g.end >= simulator_->first_backward() &&
        !g.trailing) {
      crossing_.push_back(gap);
    }
    const Implementation& impl = simulator_->problem().ops[g.op].implementations[0];
    int64_t bytes = 0;
    for (int tensor : impl.outputs) bytes += simulator_->problem().tensor_bytes[tensor];
    const auto key = std::make_tuple(impl.time, bytes, g.index, g.trailing);
    const auto found = ids.emplace(key, static_cast<int>(families_.size()));
    if (found.second) families_.emplace_back();
    std::vector<int>& family = families_[found.first->second];
    family_of_.push_back(found.first->second);
    place_in_family_.push_back(static_cast<int>(family.size()));
    family.push_back(gap);
  }
}

int Search::Get(int decision) const {
  if (is_gap(decision)) return simulator_->choice(decision);
  return simulator_->variant_on(decision - num_gaps_) ? 1 : 0;
}

int Search::Default(int decision) const {
  if (!is_gap(decision)) return 0;
  return Allowed(decision, kKeep) ? simulator_->default_choice(decision) : kDropThenRetain;
}

bool Search::Allowed(int decision, int value) const {
  if (!is_gap(decision)) return true;
  const Gap& gap = simulator_->gaps()[decision];
  if (value != kKeep || gap.trailing || simulator_->problem().pins[gap.op] != 2) return true;
  return gap.begin >= simulator_->first_backward() || gap.end < simulator_->first_backward();
}

void Search::Set(int decision, int value) {
  const int before = Get(decision);
  if (before == value || !Allowed(decision, value)) return;
  undo_.emplace_back(decision, before);
  if (is_gap(decision)) {
    simulator_->set_choice(decision, static_cast<Choice>(value));
  } else {
    const int variant = decision - num_gaps_;
    if (value) {
      for (int other : simulator_->problem().variants[variant].conflicts) {
        if (simulator_->variant_on(other)) {
          undo_.emplace_back(num_gaps_ + other, 1);
          simulator_->set_variant(other, false);
        }
      }
    }
    simulator_->set_variant(variant, value != 0);
  }
  // Keep the list of decisions that are not at their default.
  const bool is_default = value == Default(decision);
  if (is_default && changed_place_[decision] >= 0) {
    const int place = changed_place_[decision], last = changed_.back();
    changed_[place] = last;
    changed_place_[last] = place;
    changed_.pop_back();
    changed_place_[decision] = -1;
  } else if (!is_default && changed_place_[decision] < 0) {
    changed_place_[decision] = static_cast<int>(changed_.size());
    changed_.push_back(decision);
  }
}

void Search::SetAdvance(int gap, int op) {
  if (simulator_->advance(gap) == op) return;
  advance_undo_.emplace_back(gap, simulator_->advance(gap));
  simulator_->set_advance(gap, op);
}

void Search::Undo() {
  std::vector<std::pair<int, int>> steps;
  steps.swap(undo_);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) Set(step->first, step->second);
  undo_.clear();
  for (auto step = advance_undo_.rbegin(); step != advance_undo_.rend(); ++step) {
    simulator_->set_advance(step->first, step->second);
  }
  advance_undo_.clear();
}

Solution Search::Snapshot(const Outcome& outcome) {
  Solution s;
  s.known = true;
  for (int gap = 0; gap < num_gaps_; ++gap) {
    s.choices.push_back(simulator_->choice(gap));
    s.advance.push_back(simulator_->advance(gap));
  }
  for (int v = 0; v < num_variants_; ++v) s.variants.push_back(simulator_->variant_on(v));
  s.cost = outcome.cost;
  s.peak = outcome.peak;
  s.feasible = Feasible(outcome);
  return s;
}

void Search::Load(const Solution& solution) {
  if (!solution.known) return LoadDefaults();  // stopped before there was any
  for (int v = 0; v < num_variants_; ++v) {
    if (!solution.variants[v]) Set(num_gaps_ + v, 0);
  }
  for (int v = 0; v < num_variants_; ++v) {
    if (solution.variants[v]) Set(num_gaps_ + v, 1);
  }
  for (int gap = 0; gap < num_gaps_; ++gap) {
    Set(gap, solution.choices[gap]);
    SetAdvance(gap, solution.advance[gap]);
  }
  Commit();
}

void Search::LoadDefaults() {
  for (int decision = 0; decision < num_decisions(); ++decision) Set(decision, Default(decision));
  for (int gap = 0; gap < num_gaps_; ++gap) SetAdvance(gap, -1);
  Commit();
}

Outcome Search::Evaluate(double cost_limit) {
  Outcome outcome = simulator_->Evaluate(cost_limit);
  if (!pool_mode_ || !outcome.valid) return outcome;
  simulator_->AddWork(simulator_->num_steps() / 2);
  const LayerMeter::Estimate& estimate = layers_.Measure(simulator_);
  const double pool =
      slack_ * estimate.bytes + static_cast<double>(simulator_->bytes_outside_pool());
  const double excess = pool - static_cast<double>(options_.budget_bytes);
  outcome.peak = static_cast<int64_t>(pool);
  outcome.overflow = excess > 0 ? excess * (0.5 + estimate.crowding / estimate.bytes) : 0;
  return outcome;
}

int Search::WorstOp(const Outcome& outcome) {
  if (!pool_mode_) return outcome.peak_op;
  return simulator_->stage_of_step(layers_.CrowdedStep(&random_));
}

Outcome Search::Evaluate() { return Evaluate(std::numeric_limits<double>::infinity()); }

bool Search::Stopped() {
  if (stop_ != StopReason::kFinished || paused_) return true;
  // Look at the clock about every hundred thousand simulated steps: every millisecond or so.
  if (simulator_->work() < next_poll_) return false;
  next_poll_ = simulator_->work() + 100000;
  const double elapsed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const int64_t bytes = meter_ ? best_.pool : best_.peak;
  if (poll_(best_.feasible && bytes >= 0 ? best_.cost : -1, best_.feasible ? bytes : -1)) {
    stop_ = StopReason::kInterrupted;
  } else if (elapsed > options_.time_limit_s) {
    stop_ = StopReason::kTimeLimit;
  }
  // All phases are cut short alike, rather than the last ones left out.
  const double late = (elapsed / options_.time_limit_s - kFreeOfClock) / (1 - kFreeOfClock);
  const double due = std::min(late, 1.0) * static_cast<double>(options_.work_limit);
  if (late > 0 && work_begin_ + due > static_cast<double>(simulator_->work())) {
    due_by_clock_ = std::max(due_by_clock_, work_begin_ + static_cast<int64_t>(due));
    hurried_ = true;
  }
  paused_ = elapsed > pause_at_s_;
  return stop_ != StopReason::kFinished || paused_;
}

void Search::Offer(const Outcome& outcome) {
  if (!outcome.valid) return;
  if (pool_mode_) {
    OfferPool(outcome);
    return;
  }
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
  best_ = Snapshot(outcome);
  best_steps_ = simulator_->num_steps();
}

}  // namespace memonger
