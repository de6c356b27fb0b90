// A population of plans: stretches of one are put into another (crossover, as in the memetic
// algorithms of Moscato 1989), and the result is repaired and pruned.
//
// Good plans of one graph often differ in a few stretches of it, and each has some of the better
// ones; changes of a single plan seldom lead from one to the other.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/search/steps.h"

namespace memonger {

namespace {

// Plans of a population, at most.
const size_t kMostParents = 6;
// Share of the time in which new plans join.
const double kOpen = 0.3;

// A stretch of decisions, round the end where it is long, as the giver has them.
void TakeStretch(Search* search, const Solution& giver) {
  Decisions& decisions = search->decisions;
  const int length = 1 + search->random.Below(std::max(1, decisions.size() / 2));
  const int from = search->random.Below(decisions.size());
  for (int i = 0; i < length; ++i) {
    const int decision = (from + i) % decisions.size();
    if (decisions.is_gap(decision)) {
      decisions.Set(decision, giver.choices[decision]);
      decisions.SetAdvance(decision, giver.advance[decision]);
    } else {
      decisions.Set(decision, giver.variants[decision - decisions.num_gaps()]);
    }
  }
  decisions.Commit();
}

}  // namespace

// Parents start from the unplanned step, and from the best so far where it fits; a child replaces
// its first parent when it is cheaper, and is refused when it costs what another one does. Their
// number falls to one by the end.
void CrossPlans(Search* search, int64_t work_end) {
  Decisions& decisions = search->decisions;
  Target& target = search->target;
  if (decisions.size() == 0) return;
  const int64_t begin = search->effort.Spent();
  std::vector<Solution> parents;
  if (target.best().feasible) parents.push_back(target.best());
  while (!search->effort.OutOf(work_end)) {
    const double done = static_cast<double>(search->effort.Spent() - begin) /
                        static_cast<double>(std::max<int64_t>(1, work_end - begin));
    const size_t most =
        std::max<size_t>(1, static_cast<size_t>(std::ceil(kMostParents * (1 - done))));
    size_t parent = parents.size();  // a new one
    if (parents.size() < kMostParents && done < kOpen) {
      decisions.LoadDefaults();
    } else {
      if (parents.empty()) return;
      while (parents.size() > most) {
        parents.erase(
            std::max_element(parents.begin(), parents.end(),
                             [](const Solution& a, const Solution& b) { return a.cost < b.cost; }));
      }
      const int count = static_cast<int>(parents.size());
      parent = search->random.Below(count);
      decisions.Load(parents[parent]);
      if (count > 1 && search->random.OneIn(2)) {
        TakeStretch(search, parents[(parent + 1 + search->random.Below(count - 1)) % count]);
      } else {
        Perturb(search);
      }
    }
    Outcome current;
    const bool fits = Repair(search, &current, work_end);
    if (fits) Prune(search, &current, work_end);
    if (fits && target.best().feasible && current.cost < target.best().cost)
      SwapTwoForOne(search, &current, work_end);
    target.Offer(current);
    if (!fits) continue;
    bool known = false;
    for (const Solution& other : parents) known = known || other.cost == current.cost;
    if (known) continue;
    if (parent == parents.size()) {
      parents.push_back(target.Current(current));
    } else if (current.cost < parents[parent].cost) {
      parents[parent] = target.Current(current);
    }
  }
}

}  // namespace memonger
