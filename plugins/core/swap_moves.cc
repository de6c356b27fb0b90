// Swap moves: two changes taken back for one.
#include <algorithm>

#include "core/search.h"

namespace memonger {

// Drops one more value and takes two changes back instead, where that is cheaper: two small values
// may be kept in the room of a large one that takes less time to make again.
void Search::SwapMoves(Outcome* current, int64_t work_end) {
  for (bool again = true; again && !OutOf(work_end);) {
    again = false;
    std::vector<int> order;
    for (int gap = 0; gap < num_gaps_; ++gap) {
      if (changed_place_[gap] < 0 && !simulator_->gaps()[gap].trailing) order.push_back(gap);
    }
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[random_.Below(static_cast<int>(i))]);
    }
    for (int gap : order) {
      if (OutOf(work_end)) return;
      again = (changed_place_[gap] < 0 && TakeBackTwo(gap, current, work_end)) || again;
    }
  }
}

// Drops the value of a gap; true when two other changes could be taken back and all is cheaper.
bool Search::TakeBackTwo(int gap, Outcome* current, int64_t work_end) {
  std::vector<int> on = changed_;
  std::sort(on.begin(), on.end());
  const int before = Get(gap);
  const auto give_up = [&] {
    Set(gap, before);
    Commit();
    return false;
  };
  Set(gap, kDropThenRetain);
  Commit();
  const Outcome with = Evaluate();
  if (!Feasible(with)) return give_up();
  std::vector<std::pair<double, int>> gains;  // time saved by what can be taken back alone
  for (int decision : on) {
    if (OutOf(work_end)) return give_up();
    Set(decision, Default(decision));
    const Outcome without = Evaluate(with.cost);
    if (Feasible(without) && without.cost < with.cost) {
      gains.emplace_back(with.cost - without.cost, decision);
    }
    Undo();
  }
  std::sort(gains.rbegin(), gains.rend());
  for (size_t i = 0; i < gains.size(); ++i) {
    for (size_t j = i + 1; j < gains.size(); ++j) {
      if (OutOf(work_end)) return give_up();
      if (with.cost - gains[i].first - gains[j].first >= current->cost) break;
      Set(gains[i].second, Default(gains[i].second));
      Set(gains[j].second, Default(gains[j].second));
      const Outcome without = Evaluate(current->cost);
      if (Feasible(without) && without.cost < current->cost) {
        *current = without;
        Commit();
        return true;
      }
      Undo();
    }
  }
  return give_up();
}

}  // namespace memonger
