// Greedy repair, pruning, and the iterated local search made of them.
#include <algorithm>

#include "core/search.h"

namespace memonger {

// Makes the decisions fit: at the worst step, the change with the best overflow removed per cost
// added, until nothing overflows. Candidates are the values alive there, then anything.
bool Search::Repair(Outcome* current, int64_t work_end) {
  *current = Evaluate();
  if (!current->valid) return false;
  const int64_t rounds_limit = 4 * static_cast<int64_t>(num_decisions());
  // On large graphs only a sample of the candidates is tried, the cheapest per byte first.
  const int64_t steps = std::max(1, simulator_->num_steps());
  const size_t most = static_cast<size_t>(std::max<int64_t>(24, 400000 / steps));
  for (int64_t round = 0; current->overflow > 0; ++round) {
    if (round > rounds_limit || OutOf(work_end)) return false;
    const Outcome start = *current;
    double best_score = 0;
    int best_decision = -1, best_value = 0;
    const auto attempt = [&](int decision, int value, bool by_peak) {
      if (value == Get(decision) || !Allowed(decision, value)) return;
      Set(decision, value);
      const Outcome o = Evaluate();
      if (o.valid) {
        const double gain =
            by_peak ? static_cast<double>(start.peak - o.peak) : start.overflow - o.overflow;
        const double added = std::max(o.cost - start.cost, 0.0) + 1e-7 * base_cost_;
        const double noise = 0.6 + 0.8 * random_.Unit();
        const double score = gain > 0 ? (by_peak ? gain : gain / added) * noise : 0;
        if (score > best_score) {
          best_score = score;
          best_decision = decision;
          best_value = value;
        }
      }
      Undo();
    };
    std::vector<int> candidates;
    const int worst = WorstOp(start);
    for (int gap = 0; gap < num_gaps_; ++gap) {
      const Gap& g = simulator_->gaps()[gap];
      if (simulator_->choice(gap) == kKeep && g.begin < worst && g.end >= worst) {
        candidates.push_back(gap);
      }
    }
    if (candidates.size() > most) {
      for (size_t i = 0; i < most; ++i) {
        std::swap(candidates[i],
                  candidates[i + random_.Below(static_cast<int>(candidates.size() - i))]);
      }
      candidates.resize(most);
    }
    for (int decision : candidates) {
      attempt(decision, kDropThenRetain, false);
      attempt(decision, kDropTransient, false);
    }
    for (int v = 0; v < num_variants_; ++v) {
      if (num_variants_ <= static_cast<int>(most) ||
          random_.Below(num_variants_) < static_cast<int>(most)) {
        attempt(num_gaps_ + v, 1 - Get(num_gaps_ + v), false);
      }
    }
    for (int pass = 0; pass < 2 && best_decision < 0 && !OutOf(work_end); ++pass) {
      for (int decision = 0; decision < num_decisions(); ++decision) {
        if (num_decisions() > static_cast<int>(2 * most) &&
            random_.Below(num_decisions()) >= static_cast<int>(2 * most)) {
          continue;
        }
        for (int value = 0; value < num_values(decision); ++value)
          attempt(decision, value, pass == 1);
      }
    }
    if (best_decision < 0) return false;
    Set(best_decision, best_value);
    Commit();
    *current = Evaluate();
  }
  return true;
}

// Takes back every change that is not needed.
void Search::Prune(Outcome* current, int64_t work_end) {
  bool again = true;
  while (again && !OutOf(work_end)) {
    again = false;
    std::vector<int> order = changed_;
    std::sort(order.begin(), order.end());
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[random_.Below(static_cast<int>(i))]);
    }
    for (int decision : order) {
      if (OutOf(work_end)) return;
      const int before = Get(decision);
      for (int value = 0; value < num_values(decision); ++value) {
        if (value == before || !Allowed(decision, value)) continue;
        Set(decision, value);
        const Outcome o = Evaluate(current->cost);
        if (Feasible(o) &&
            (o.cost < current->cost || (value == Default(decision) && o.cost <= current->cost))) {
          again = again || o.cost < current->cost;
          *current = o;
          Commit();
          break;
        }
        Undo();
      }
    }
  }
}

// A few changes of the best solution: some taken back, neighbours or any, some made at random.
void Search::Perturb() {
  const int taken_back = 1 + random_.Below(6);
  std::vector<int> on = changed_;
  std::sort(on.begin(), on.end());
  if (!on.empty()) {
    const int size = static_cast<int>(on.size());
    if (random_.OneIn(2)) {
      const int from = random_.Below(size);
      for (int i = from; i < std::min(size, from + taken_back); ++i) Set(on[i], Default(on[i]));
    } else {
      for (int i = 0; i < taken_back; ++i) {
        const int decision = on[random_.Below(size)];
        Set(decision, Default(decision));
      }
    }
  }
  for (int i = random_.Below(4); i > 0; --i) {
    const int decision = random_.Below(num_decisions());
    Set(decision, is_gap(decision) ? 1 + random_.Below(2) : random_.Below(2));
  }
  Commit();
}

void Search::Iterate(int64_t work_end) {
  if (num_decisions() == 0 || !Has(kRepairs)) return;
  int failures = 0;
  for (int round = 0; !OutOf(work_end); ++round) {
    if (!best_.feasible || round % 30 == 29) {
      LoadDefaults();
    } else {
      Load(best_);
      Perturb();
    }
    Outcome current;
    if (!Repair(&current, work_end)) {
      Offer(current);
      if (!best_.feasible && ++failures >= 10) return;
      continue;
    }
    Offer(current);
    Prune(&current, work_end);
    Offer(current);
  }
}

}  // namespace memonger
