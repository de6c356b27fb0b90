// Simulated annealing on cost + weight * overflow; the weight adjusts itself so that the walk
// stays at the edge of feasibility (Kirkpatrick, Gelatt and Vecchi 1983; the adjustment is that of
// strategic oscillation in tabu search, Glover 1989).
#include <algorithm>
#include <cmath>

#include "core/search.h"

namespace memonger {

// What one recomputation of the best solution costs on average: the scale of all temperatures.
double Search::Unit() const {
  const double added = best_.cost - base_cost_;
  const int reruns = best_steps_ - simulator_->num_ops();
  if (added > 0 && reruns > 0) return added / reruns;
  return base_cost_ / simulator_->num_ops();
}

void Search::Anneal(Outcome current, Temperature temperature, int64_t work_end) {
  if (!current.valid || num_items() == 0) return;
  const int64_t work_begin = Spent();
  if (work_end <= work_begin) return;
  const double hot = temperature.start * Unit(), cold = temperature.end * Unit();
  if (!(hot > 0) || !(cold > 0)) return;
  double value = current.cost + weight_ * current.overflow;
  double heat = hot;
  for (int64_t move = 1; !OutOf(work_end); ++move) {
    if (move % 64 == 1) {
      const double done = static_cast<double>(Spent() - work_begin) /
                          static_cast<double>(work_end - work_begin);
      heat = hot * std::pow(cold / hot, done);
    }
    ProposeMove(current);
    // The largest value that will be accepted, drawn first, lets the simulation stop early.
    const double limit = value - heat * std::log(random_.Unit());
    const Outcome next = Evaluate(limit);
    const double next_value = next.cost + weight_ * next.overflow;
    if (next.valid && next_value <= limit) {
      Commit();
      current = next;
      if (pool_mode_ && next.overflow > 0) current.peak_op = WorstOp(next);
      value = next_value;
      if (next.overflow <= 0) {
        if (!best_.feasible || next.cost < best_.cost) Offer(next);
      }
    } else {
      Undo();
    }
    if (move % 500 == 0) {
      weight_ *= current.overflow > 0 ? 1.0123 : 0.995;
      value = current.cost + weight_ * current.overflow;
    }
  }
}

// Any item; gaps behind the last use, which seldom matter, seldom.
int Search::PickItem() {
  const int item = random_.Below(num_items());
  if (!is_gap(item) || !simulator_->gaps()[item].trailing || random_.OneIn(8)) return item;
  return random_.Below(num_items());
}

void Search::ProposeMove(const Outcome& current) {
  if (num_gaps_ > 0 && random_.OneIn(num_gaps_ > 2000 ? 4 : 24)) {
    ProposeBlock();
    return;
  }
  const int count = 1 + (random_.OneIn(3) ? 1 : 0) + (random_.OneIn(8) ? 1 : 0);
  int first = 0;
  for (int i = 0; i < count; ++i) {
    int item;
    if (i == 0) {
      item = PickItem();
      if (current.overflow > 0 && random_.OneIn(2)) {
        // Something that is alive at the worst step.
        for (int tries = 0; tries < 30; ++tries) {
          if (!is_gap(item)) break;
          const Gap& gap = simulator_->gaps()[item];
          if (gap.begin < current.peak_op && gap.end >= current.peak_op) break;
          item = PickItem();
        }
      } else if (current.overflow <= 0 && !changed_.empty() && random_.OneIn(4)) {
        item = changed_[random_.Below(static_cast<int>(changed_.size()))];
      }
      first = item;
    } else if (random_.OneIn(2)) {
      item = PickItem();
    } else {
      item = std::max(0, std::min(num_items() - 1, first + random_.Below(21) - 10));
    }
    int value;
    do {
      value = random_.Below(num_values(item));
    } while (value == Get(item));
    Set(item, value);
  }
  if (any_advance_ && is_gap(first) && TryAdvance()) ProposeAdvance(first);
}

// One decision for a run of like ops: repeated blocks change together.
void Search::ProposeBlock() {
  const int gap = random_.Below(num_gaps_);
  const std::vector<int>& family = families_[family_of_[gap]];
  const int size = static_cast<int>(family.size());
  int length = 2;
  while (length < size && random_.OneIn(2)) length *= 2;
  const int begin = place_in_family_[gap];
  const int value = random_.Below(3);
  for (int i = begin; i < std::min(size, begin + length); ++i) Set(family[i], value);
}

void Search::ProposeAdvance(int gap) {
  const Gap& g = simulator_->gaps()[gap];
  const int begin = g.begin + 1, end = g.end;
  if (g.trailing || random_.OneIn(4) || end <= begin) {
    SetAdvance(gap, -1);
    return;
  }
  const int before = simulator_->advance(gap);
  int op;
  if (before >= 0 && random_.OneIn(2)) {
    op = std::max(begin, std::min(end, before + random_.Below(7) - 3));
  } else {
    op = begin + random_.Below(end - begin);
  }
  SetAdvance(gap, op);
  if (simulator_->choice(gap) == kKeep) Set(gap, 1 + random_.Below(2));
}

}  // namespace memonger
