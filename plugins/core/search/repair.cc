// Greedy repair, pruning, and the iterated local search made of them.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/search/steps.h"

namespace memonger {

namespace {

// Scores are multiplied at random, by at least this.
const double kLeastNoise = 0.6;
// What the largest of these factors is beyond the least.
const double kNoise = 0.8;
// Time added that counts as none, as a share of the step's.
const double kNoTime = 1e-7;
// One round tries as many candidates as take so many simulated steps.
const int64_t kStepsOfRound = 400000;
// One round tries no fewer candidates than this.
const int64_t kFewestCandidates = 24;
// Repair makes at most so many changes for each decision.
const int64_t kRoundsPerDecision = 4;
// Changes that are taken back at once to perturb a plan, at most.
const int kTakenBack = 6;
// Changes that are then made at random, at most.
const int kMadeAtRandom = 3;
// One round of iterated repair in so many starts from nothing.
const int kFreshStartEvery = 30;
// Iterated repair gives up where so many starts in a row did not fit.
const int kMostFailures = 10;

}  // namespace

// Makes the decisions fit: at the worst step, the change with the best overflow removed per cost
// added, until nothing overflows. Candidates are the values alive there, then anything.
bool Repair(Search* search, Outcome* current, int64_t work_end) {
  Decisions& decisions = search->decisions;
  Target& target = search->target;
  *current = target.Evaluate();
  if (!current->valid) return false;
  const int64_t rounds_limit = kRoundsPerDecision * decisions.size();
  // On large graphs only a sample of the candidates is tried, the cheapest per byte first.
  const int64_t steps = std::max(1, search->simulator->num_steps());
  const size_t most = static_cast<size_t>(std::max(kFewestCandidates, kStepsOfRound / steps));
  for (int64_t round = 0; current->overflow > 0; ++round) {
    if (round > rounds_limit || search->effort.OutOf(work_end)) return false;
    const Outcome start = *current;
    double best_score = 0;
    int best_decision = -1, best_value = 0;
    const auto attempt = [&](int decision, int value, bool by_peak) {
      if (value == decisions.Get(decision) || !decisions.Allowed(decision, value)) return;
      decisions.Set(decision, value);
      const Outcome o = target.Evaluate();
      if (o.valid) {
        const double gain =
            by_peak ? static_cast<double>(start.peak - o.peak) : start.overflow - o.overflow;
        const double added = std::max(o.cost - start.cost, 0.0) + kNoTime * target.base_cost();
        const double noise = kLeastNoise + kNoise * search->random.Unit();
        const double score = gain > 0 ? (by_peak ? gain : gain / added) * noise : 0;
        if (score > best_score) {
          best_score = score;
          best_decision = decision;
          best_value = value;
        }
      }
      decisions.Undo();
    };
    std::vector<int> candidates;
    const int worst = target.WorstOp(start);
    for (int gap = 0; gap < decisions.num_gaps(); ++gap) {
      const Gap& g = search->simulator->gaps()[gap];
      if (search->simulator->choice(gap) == kKeep && g.begin < worst && g.end >= worst) {
        candidates.push_back(gap);
      }
    }
    if (candidates.size() > most) {
      for (size_t i = 0; i < most; ++i) {
        std::swap(candidates[i],
                  candidates[i + search->random.Below(static_cast<int>(candidates.size() - i))]);
      }
      candidates.resize(most);
    }
    for (int decision : candidates) {
      attempt(decision, kDropThenRetain, false);
      attempt(decision, kDropTransient, false);
    }
    for (int v = 0; v < decisions.num_variants(); ++v) {
      if (decisions.num_variants() <= static_cast<int>(most) ||
          search->random.Below(decisions.num_variants()) < static_cast<int>(most)) {
        attempt(decisions.variant(v), 1 - decisions.Get(decisions.variant(v)), false);
      }
    }
    for (int pass = 0; pass < 2 && best_decision < 0 && !search->effort.OutOf(work_end); ++pass) {
      for (int decision = 0; decision < decisions.size(); ++decision) {
        if (decisions.size() > static_cast<int>(2 * most) &&
            search->random.Below(decisions.size()) >= static_cast<int>(2 * most)) {
          continue;
        }
        for (int value = 0; value < decisions.num_values(decision); ++value)
          attempt(decision, value, pass == 1);
      }
    }
    if (best_decision < 0) return false;
    decisions.Set(best_decision, best_value);
    decisions.Commit();
    *current = target.Evaluate();
  }
  return true;
}

// Takes back every change that is not needed.
void Prune(Search* search, Outcome* current, int64_t work_end) {
  Decisions& decisions = search->decisions;
  Target& target = search->target;
  bool again = true;
  while (again && !search->effort.OutOf(work_end)) {
    again = false;
    std::vector<int> order = decisions.SortedOffDefault();
    Shuffle(&search->random, &order);
    for (int decision : order) {
      if (search->effort.OutOf(work_end)) return;
      const int before = decisions.Get(decision);
      for (int value = 0; value < decisions.num_values(decision); ++value) {
        if (value == before || !decisions.Allowed(decision, value)) continue;
        decisions.Set(decision, value);
        const Outcome o = target.Evaluate(current->cost);
        if (target.Feasible(o) &&
            (o.cost < current->cost ||
             (value == decisions.Default(decision) && o.cost <= current->cost))) {
          again = again || o.cost < current->cost;
          *current = o;
          decisions.Commit();
          break;
        }
        decisions.Undo();
      }
    }
  }
}

// A few changes of the best solution: some taken back, neighbours or any, some made at random.
void Perturb(Search* search) {
  Decisions& decisions = search->decisions;
  const int taken_back = 1 + search->random.Below(kTakenBack);
  const std::vector<int> on = decisions.SortedOffDefault();
  if (!on.empty()) {
    const int size = static_cast<int>(on.size());
    if (search->random.OneIn(2)) {
      const int from = search->random.Below(size);
      for (int i = from; i < std::min(size, from + taken_back); ++i)
        decisions.Set(on[i], decisions.Default(on[i]));
    } else {
      for (int i = 0; i < taken_back; ++i) {
        const int decision = on[search->random.Below(size)];
        decisions.Set(decision, decisions.Default(decision));
      }
    }
  }
  for (int i = search->random.Below(kMadeAtRandom + 1); i > 0; --i) {
    const int decision = search->random.Below(decisions.size());
    decisions.Set(decision, decisions.is_gap(decision) ? 1 + search->random.Below(2)
                                                       : search->random.Below(2));
  }
  decisions.Commit();
}

void IterateRepairs(Search* search, int64_t work_end) {
  Decisions& decisions = search->decisions;
  Target& target = search->target;
  if (decisions.size() == 0 || !search->Has(kRepairs)) return;
  int failures = 0;
  for (int round = 0; !search->effort.OutOf(work_end); ++round) {
    if (!target.best().feasible || round % kFreshStartEvery == kFreshStartEvery - 1) {
      decisions.LoadDefaults();
    } else {
      decisions.Load(target.best());
      Perturb(search);
    }
    Outcome current;
    if (!Repair(search, &current, work_end)) {
      target.Offer(current);
      if (!target.best().feasible && ++failures >= kMostFailures) return;
      continue;
    }
    target.Offer(current);
    Prune(search, &current, work_end);
    target.Offer(current);
  }
}

}  // namespace memonger
