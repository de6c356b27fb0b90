// The portfolio over decisions of the joint model: greedy repair, pruning, iterated local search
// and simulated annealing (sources: repair.cc, anneal.cc).
#include "joint_search.h"

#include <algorithm>
#include <cmath>

namespace memonger {

JointSearch::JointSearch(const JointModel& model, const JointOptions& options)
    : model_(model), options_(options), state_(model), decisions_(model), random_(options.seed),
      start_(std::chrono::steady_clock::now()) {}

double JointSearch::Progress() {
  if (stopped_) return 2;
  const double worked =
      static_cast<double>(state_.work()) / static_cast<double>(std::max<int64_t>(
          1, options_.work_limit));
  if (asked_++ % 32 == 0) {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const double used = seconds / std::max(options_.time_limit_s, 1e-9);
    progress_ = used;
    // A clock that is far from its limit decides nothing.
    if (used > worked) out_of_time_ = true;
    if (asked_ % 1024 == 1 && options_.stop && options_.stop()) stopped_ = true;
  }
  return std::max(worked, progress_);
}

JointOutcome JointSearch::Try() {
  ++evaluations_;
  decisions_.Unroll(&state_);
  return state_.Evaluate();
}

void JointSearch::Load(const std::vector<int>& values) {
  decisions_.Load(values);
  Try();
  Take();
}

// Keeps the committed plan when it is the best so far, or of its start.
void JointSearch::Offer(bool from_decisions) {
  const JointOutcome& now = state_.outcome();
  const auto better = [&](const JointOutcome& than) {
    return now.overflow < than.overflow ||
           (now.overflow == than.overflow && now.cost < than.cost);
  };
  if (from_decisions && (!have_decided_ || better(best_decided_))) {
    best_decided_ = now;
    best_values_ = decisions_.values();
    have_decided_ = true;
  }
  if (!have_run_ || better(best_of_run_)) {
    best_of_run_ = now;
    plan_of_run_ = state_.plan();
    have_run_ = true;
  }
  if (have_ && !better(best_)) return;
  best_ = now;
  best_plan_ = state_.plan();
  best_found_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  have_ = true;
}

// At the worst stage, the change with the most overflow removed per cost added, until all fits.
bool JointSearch::Repair(double until) {
  JointOutcome current = Try();
  Take();
  for (int round = 0; current.overflow > 0; ++round) {
    if (round > 4 * decisions_.num_items() || Past(until)) return false;
    int worst = 0;
    for (int t = 1; t < model_.num_stages(); ++t) {
      if (state_.stage(t).overflow > state_.stage(worst).overflow) worst = t;
    }
    double best_score = 0;
    int best_item = -1, best_value = 0;
    const auto attempt = [&](int item, int value) {
      const int before = decisions_.Get(item);
      if (value == before) return;
      decisions_.Set(item, value);
      const JointOutcome next = Try();
      state_.Undo();
      decisions_.Set(item, before);
      const double gain = static_cast<double>(current.overflow - next.overflow);
      if (gain <= 0) return;
      const double added = std::max<double>(static_cast<double>(next.cost - current.cost), 0) +
                           1e-7 * static_cast<double>(base_cost_);
      const double score = gain / added * (0.6 + 0.8 * random_.Unit());
      if (score > best_score) {
        best_score = score;
        best_item = item;
        best_value = value;
      }
    };
    for (int item = 0; item < decisions_.num_items(); ++item) {
      const bool is_gap = item < decisions_.num_gaps();
      if (is_gap && (decisions_.Get(item) != 0 || decisions_.first_stage(item) > worst ||
                     decisions_.last_stage(item) < worst)) {
        continue;
      }
      for (int value = 0; value < decisions_.num_values(item); ++value) attempt(item, value);
    }
    for (int item = 0; item < decisions_.num_items() && best_item < 0; ++item) {
      if (Past(until)) return false;
      for (int value = 0; value < decisions_.num_values(item); ++value) attempt(item, value);
    }
    if (best_item < 0) return false;
    decisions_.Set(best_item, best_value);
    current = Try();
    Take();
  }
  return true;
}

// Single changes that make a plan that fits cheaper, until there is none.
void JointSearch::Prune(double until) {
  std::vector<int> order(decisions_.num_items());
  for (int i = 0; i < decisions_.num_items(); ++i) order[i] = i;
  for (bool again = true; again;) {
    again = false;
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[random_.Below(static_cast<int>(i))]);
    }
    for (int item : order) {
      if (Past(until)) return;
      for (int value = 0; value < decisions_.num_values(item); ++value) {
        const int before = decisions_.Get(item);
        const JointOutcome current = state_.outcome();
        if (value == before) continue;
        decisions_.Set(item, value);
        const JointOutcome next = Try();
        const bool back = value == decisions_.Default(item);
        if (next.fits() && (next.cost < current.cost || (back && next.cost == current.cost))) {
          again = again || next.cost < current.cost;
          Take();
        } else {
          state_.Undo();
          decisions_.Set(item, before);
        }
      }
    }
  }
}

// A few changes taken back, neighbours or any, and some made at random.
void JointSearch::Perturb() {
  std::vector<int> changed;
  for (int item = 0; item < decisions_.num_items(); ++item) {
    if (decisions_.Get(item) != decisions_.Default(item)) changed.push_back(item);
  }
  const auto reset = [&](int item) { decisions_.Set(item, decisions_.Default(item)); };
  const int count = 1 + random_.Below(8), size = static_cast<int>(changed.size());
  if (size > 0) {
    const int from = random_.Below(size);
    const bool neighbours = random_.OneIn(2);
    for (int i = 0; i < count; ++i) {
      if (!neighbours) reset(changed[random_.Below(size)]);
      if (neighbours && from + i < size) reset(changed[from + i]);
    }
  }
  for (int i = random_.Below(4); i > 0; --i) {
    const int item = random_.Below(decisions_.num_items());
    decisions_.Set(item, random_.Below(decisions_.num_values(item)));
  }
}

void JointSearch::Iterate(double until) {
  for (int round = 0; !Past(until); ++round) {
    if (!best_decided_.fits() || round % 60 == 59) {
      if (round >= 3 && !best_decided_.fits()) return;
      Load(decisions_.Defaults());
    } else {
      Load(best_values_);
      Perturb();
    }
    if (Repair(until)) Prune(until);
    Offer(true);
  }
}

// Another variant of a backward node: what only the old one needs is dropped before it, what only
// the new one needs is kept.
void JointSearch::ExchangeVariant(const std::function<void(int, int)>& change) {
  const int item = decisions_.num_gaps() +
                   random_.Below(decisions_.num_items() - decisions_.num_gaps());
  const int stage = decisions_.last_stage(item), values = decisions_.num_values(item);
  const int before = decisions_.Get(item);
  const int after = (before + 1 + random_.Below(values - 1)) % values;
  const JointNode& node = model_.backward(stage);
  change(item, after);
  for (int v : node.variants[before].needs) {
    if (!node.variants[after].needs_set.Has(v)) change(decisions_.GapBefore(v, stage), 2);
  }
  for (int v : node.variants[after].needs) {
    if (!node.variants[before].needs_set.Has(v)) change(decisions_.GapBefore(v, stage), 0);
  }
}

// Of a value and one that is made from it, one is kept in place of the other.
void JointSearch::ExchangeNeighbours(const std::function<void(int, int)>& change) {
  const int node = random_.Below(model_.num_forward());
  const auto& inputs = model_.node(node).variants[0].needs;
  if (inputs.empty()) return;
  const int input = inputs[random_.Below(static_cast<int>(inputs.size()))];
  const int stage = 1 + random_.Below(model_.num_stages() - 1);
  const int one = decisions_.GapAt(node, stage), other = decisions_.GapAt(input, stage);
  const int kept = decisions_.Get(one);
  change(one, decisions_.Get(other));
  change(other, kept);
}

void JointSearch::Anneal(double hot, double cold, double until) {
  const double from = Progress();
  if (from >= until) return;
  double heat = hot;
  const auto value_of = [&](const JointOutcome& o) {
    return static_cast<double>(o.cost) + weight_ * static_cast<double>(o.overflow);
  };
  JointOutcome current = state_.outcome();
  double value = value_of(current);
  std::vector<std::pair<int, int>> changed;  // item, value before
  for (int64_t move = 1;; ++move) {
    if (move % 64 == 1) {
      const double progress = Progress();
      if (progress >= until) return;
      heat = hot * std::pow(cold / hot, (progress - from) / (until - from));
    }
    changed.clear();
    const auto change = [&](int item, int to) {
      if (item < 0 || decisions_.Get(item) == to) return;
      changed.emplace_back(item, decisions_.Get(item));
      decisions_.Set(item, to);
    };
    const int any = random_.Below(decisions_.num_items());
    if (decisions_.num_gaps() < decisions_.num_items() && random_.OneIn(10)) {
      ExchangeVariant(change);
    } else if (random_.OneIn(8)) {
      ExchangeNeighbours(change);
    } else {
      const int count = 1 + (random_.OneIn(3) ? 1 : 0) + (random_.OneIn(8) ? 1 : 0);
      for (int i = 0; i < count; ++i) {
        int item = any;
        if (i > 0) item = random_.Below(decisions_.num_items());
        if (i > 0 && random_.OneIn(2)) {
          item = std::max(0, std::min(decisions_.num_items() - 1,
                                      any + random_.Below(21) - 10));
        }
        const int values = decisions_.num_values(item);
        change(item, (decisions_.Get(item) + 1 + random_.Below(values - 1)) % values);
      }
    }
    if (changed.empty()) continue;
    const JointOutcome next = Try();
    const double next_value = value_of(next);
    if (next_value <= value - heat * std::log(random_.Unit())) {
      Take();
      current = next;
      value = next_value;
      if (next.fits() && (!best_decided_.fits() || next.cost < best_decided_.cost)) Offer(true);
    } else {
      state_.Undo();
      for (size_t i = changed.size(); i-- > 0;) {
        decisions_.Set(changed[i].first, changed[i].second);
      }
    }
    if (move % 500 == 0) {
      weight_ *= current.overflow > 0 ? 1.0123 : 0.995;
      value = value_of(current);
    }
  }
}

double JointSearch::FirstWeight() const {
  return 0.2 * static_cast<double>(base_cost_) /
         static_cast<double>(std::max<int64_t>(1, model_.budget()));
}

// Greedy repair and annealing of decisions from the unplanned step, then annealing of what is
// held; `heat` of the latter is for the largest time of an op.
void JointSearch::Start(double polish_heat, double until) {
  const double from = Progress();
  const auto share = [&](double part) { return from + part * (until - from); };
  const double largest = static_cast<double>(model_.largest_time());
  have_decided_ = have_run_ = false;
  weight_ = FirstWeight();
  Load(decisions_.Defaults());
  Offer(true);
  const bool many = polish_heat < 0.1;  // too many decisions to anneal what is held for long
  Anneal(0.3 * largest, (many ? 0.001 : 0.01) * largest, share(many ? 0.4 : 0.2));
  if (many) {
    Load(best_values_);
    Anneal(0.05 * largest, 0.001 * largest, share(0.6));
  }
  Load(best_values_);
  if (best_decided_.fits()) Prune(until);
  Offer(true);
  Polish(polish_heat * largest, 0.0005 * largest, share(0.85));
  Polish(0.5 * polish_heat * largest, 0.0005 * largest, until);
}

// Anneals what is held again, from the better half of some plans, twice each: warm enough to leave
// a local optimum, too cold to forget what is good about it.
void JointSearch::Improve(std::vector<Found> found) {
  const auto cheaper = [](const Found& one, const Found& other) {
    return std::make_pair(one.outcome.overflow, one.outcome.cost) <
           std::make_pair(other.outcome.overflow, other.outcome.cost);
  };
  std::stable_sort(found.begin(), found.end(), cheaper);
  found.resize((found.size() + 1) / 2);
  const double from = Progress(), largest = static_cast<double>(model_.largest_time());
  const size_t rounds = 2 * found.size();
  for (size_t round = 0; round < rounds; ++round) {
    Found& chosen = found[round % found.size()];
    best_of_run_ = chosen.outcome;
    plan_of_run_ = chosen.plan;
    weight_ = FirstWeight();
    Polish(0.02 * largest, 0.0005 * largest,
           from + (1 - from) * static_cast<double>(round + 1) / static_cast<double>(rounds));
    chosen = {best_of_run_, plan_of_run_};
  }
}

JointPlan JointSearch::Run() {
  decisions_.Load(decisions_.Defaults());
  base_cost_ = Try().cost;
  Take();
  Offer(true);
  // Small problems: many short starts, annealed hotter, and most of the time for the better half.
  const double size =
      static_cast<double>(model_.num_forward()) * static_cast<double>(model_.num_stages());
  const bool small = size <= 10000;
  const int starts = small ? 14 : std::max(1, static_cast<int>(40000 / size));
  const double polish_heat = std::min(0.2, 0.2 * std::pow(8000 / size, 1.5));
  Iterate(0.05);
  std::vector<Found> found;
  for (int start = 0; start < starts; ++start) {
    Start(polish_heat, 0.05 + (small ? 0.25 : 0.95) * (start + 1) / starts);
    found.push_back({best_of_run_, plan_of_run_});
  }
  if (small) Improve(found);
  return best_plan_;
}

}  // namespace memonger
