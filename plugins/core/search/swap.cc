// Swap moves: two changes taken back for one.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/search/steps.h"

namespace memonger {

namespace {

// Drops the value of a gap; true when two other changes could be taken back and all is cheaper.
bool TakeBackTwo(Search* search, int gap, Outcome* current, int64_t work_end) {
  Decisions& decisions = search->decisions;
  Target& target = search->target;
  const std::vector<int> on = decisions.SortedOffDefault();
  const int before = decisions.Get(gap);
  const auto give_up = [&] {
    decisions.Set(gap, before);
    decisions.Commit();
    return false;
  };
  decisions.Set(gap, kDropThenRetain);
  decisions.Commit();
  const Outcome with = target.Evaluate();
  if (!target.Feasible(with)) return give_up();
  std::vector<std::pair<double, int>> gains;  // time saved by what can be taken back alone
  for (int decision : on) {
    if (search->effort.OutOf(work_end)) return give_up();
    decisions.Set(decision, decisions.Default(decision));
    const Outcome without = target.Evaluate(with.cost);
    if (target.Feasible(without) && without.cost < with.cost) {
      gains.emplace_back(with.cost - without.cost, decision);
    }
    decisions.Undo();
  }
  std::sort(gains.rbegin(), gains.rend());
  for (size_t i = 0; i < gains.size(); ++i) {
    for (size_t j = i + 1; j < gains.size(); ++j) {
      if (search->effort.OutOf(work_end)) return give_up();
      if (with.cost - gains[i].first - gains[j].first >= current->cost) break;
      decisions.Set(gains[i].second, decisions.Default(gains[i].second));
      decisions.Set(gains[j].second, decisions.Default(gains[j].second));
      const Outcome without = target.Evaluate(current->cost);
      if (target.Feasible(without) && without.cost < current->cost) {
        *current = without;
        decisions.Commit();
        return true;
      }
      decisions.Undo();
    }
  }
  return give_up();
}

}  // namespace

// Drops one more value and takes two changes back instead, where that is cheaper: two small values
// may be kept in the room of a large one that takes less time to make again.
void SwapTwoForOne(Search* search, Outcome* current, int64_t work_end) {
  Decisions& decisions = search->decisions;
  for (bool again = true; again && !search->effort.OutOf(work_end);) {
    again = false;
    std::vector<int> order;
    for (int gap = 0; gap < decisions.num_gaps(); ++gap) {
      if (!decisions.is_off_default(gap) && !search->simulator->gaps()[gap].trailing)
        order.push_back(gap);
    }
    Shuffle(&search->random, &order);
    for (int gap : order) {
      if (search->effort.OutOf(work_end)) return;
      again =
          (!decisions.is_off_default(gap) && TakeBackTwo(search, gap, current, work_end)) || again;
    }
  }
}

}  // namespace memonger
