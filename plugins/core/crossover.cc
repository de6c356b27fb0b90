// A population of plans: stretches of one are put into another (crossover, as in the memetic
// algorithms of Moscato 1989), and the result is repaired and pruned.
//
// Good plans of one graph often differ in a few stretches of it, and each has some of the better
// ones; changes of a single plan seldom lead from one to the other.
#include <algorithm>
#include <cmath>

#include "core/search.h"

namespace memonger {

namespace {

const size_t kMostParents = 6;
// Share of the time in which new plans join.
const double kOpen = 0.3;

}  // namespace

// A stretch of decisions, round the end where it is long, as the giver has them.
void Search::TakeStretch(const Solution& giver) {
  const int length = 1 + random_.Below(std::max(1, num_decisions() / 2));
  const int from = random_.Below(num_decisions());
  for (int i = 0; i < length; ++i) {
    const int decision = (from + i) % num_decisions();
    if (is_gap(decision)) {
      Set(decision, giver.choices[decision]);
      SetAdvance(decision, giver.advance[decision]);
    } else {
      Set(decision, giver.variants[decision - num_gaps_]);
    }
  }
  Commit();
}

// Parents start from the unplanned step, and from the best so far where it fits; a child replaces
// its first parent when it is cheaper, and is refused when it costs what another one does. Their
// number falls to one by the end.
void Search::Crossover(int64_t work_end) {
  if (num_decisions() == 0) return;
  const int64_t begin = Spent();
  std::vector<Solution> parents;
  if (best_.feasible) parents.push_back(best_);
  while (!OutOf(work_end)) {
    const double done = static_cast<double>(Spent() - begin) /
                        static_cast<double>(std::max<int64_t>(1, work_end - begin));
    const size_t most =
        std::max<size_t>(1, static_cast<size_t>(std::ceil(kMostParents * (1 - done))));
    size_t parent = parents.size();  // a new one
    if (parents.size() < kMostParents && done < kOpen) {
      LoadDefaults();
    } else {
      if (parents.empty()) return;
      while (parents.size() > most) {
        parents.erase(
            std::max_element(parents.begin(), parents.end(),
                             [](const Solution& a, const Solution& b) { return a.cost < b.cost; }));
      }
      const int count = static_cast<int>(parents.size());
      parent = random_.Below(count);
      Load(parents[parent]);
      if (count > 1 && random_.OneIn(2)) {
        TakeStretch(parents[(parent + 1 + random_.Below(count - 1)) % count]);
      } else {
        Perturb();
      }
    }
    Outcome current;
    const bool fits = Repair(&current, work_end);
    if (fits) Prune(&current, work_end);
    if (fits && best_.feasible && current.cost < best_.cost) SwapMoves(&current, work_end);
    Offer(current);
    if (!fits) continue;
    bool known = false;
    for (const Solution& other : parents) known = known || other.cost == current.cost;
    if (known) continue;
    if (parent == parents.size()) {
      parents.push_back(Snapshot(current));
    } else if (current.cost < parents[parent].cost) {
      parents[parent] = Snapshot(current);
    }
  }
}

}  // namespace memonger
