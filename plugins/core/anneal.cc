// Simulated annealing on cost + weight * overflow; the weight adjusts itself so that the walk
// stays at the edge of feasibility (Kirkpatrick, Gelatt and Vecchi 1983; the adjustment is that of
// strategic oscillation in tabu search, Glover 1989).
#include <algorithm>
#include <cmath>

#include "core/search.h"

namespace memonger {

namespace {

// One move in so many: like ops in a row, in large graphs and others; a stretch; a checkpoint.
const int kBlockLarge = 4, kBlock = 24, kStretch = 6, kShift = 4;
// Mean length of a stretch, and how far a checkpoint moves.
const int kLength = 8;
// After so many moves a walk that overflows makes overflow dearer, one that fits cheaper.
const int kMovesPerWeighing = 100;
const double kDearer = 1.02, kCheaper = 0.993;

}  // namespace

// What one recomputation of the best solution costs on average: the scale of all temperatures.
double Search::Unit() const {
  const double added = best_.cost - base_cost_;
  const int reruns = best_steps_ - simulator_->num_ops();
  if (added > 0 && reruns > 0) return added / reruns;
  return base_cost_ / simulator_->num_ops();
}

void Search::Anneal(Outcome current, Temperature temperature, int64_t work_end) {
  if (!current.valid || num_decisions() == 0 || !Has(kAnnealing)) return;
  const int64_t work_begin = Spent();
  if (work_end <= work_begin) return;
  const double hot = temperature.start * Unit(), cold = temperature.end * Unit();
  if (!(hot > 0) || !(cold > 0)) return;
  double value = current.cost + weight_ * current.overflow;
  double heat = hot;
  for (int64_t move = 1; !OutOf(work_end); ++move) {
    if (move % 64 == 1) {
      const double done =
          static_cast<double>(Spent() - work_begin) / static_cast<double>(work_end - work_begin);
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
      if (next.overflow <= 0 && options_.smallest) {
        KeepSmallest(next);
        current = Evaluate();
        value = current.cost + weight_ * current.overflow;
      } else if (next.overflow <= 0) {
        if (!best_.feasible || next.cost < best_.cost) Offer(next);
      }
    } else {
      Undo();
    }
    if (move % kMovesPerWeighing == 0) {
      weight_ *= current.overflow > 0 ? kDearer : kCheaper;
      value = current.cost + weight_ * current.overflow;
    }
  }
}

// Any decision; gaps behind the last use, which seldom matter, seldom.
int Search::PickDecision() {
  const int decision = random_.Below(num_decisions());
  if (!is_gap(decision) || !simulator_->gaps()[decision].trailing || random_.OneIn(8))
    return decision;
  return random_.Below(num_decisions());
}

void Search::ProposeMove(const Outcome& current) {
  if (Has(kBlocks) && num_gaps_ > 0 && random_.OneIn(num_gaps_ > 2000 ? kBlockLarge : kBlock)) {
    return ProposeBlock();
  }
  if (Has(kStretches) && !crossing_.empty() && random_.OneIn(kStretch)) return ProposeStretch();
  if (Has(kShifts) && !crossing_.empty() && random_.OneIn(kShift)) return ProposeShift();
  const int count = 1 + (random_.OneIn(3) ? 1 : 0) + (random_.OneIn(8) ? 1 : 0);
  int first = 0;
  for (int i = 0; i < count; ++i) {
    int decision;
    if (i == 0) {
      decision = PickDecision();
      if (current.overflow > 0 && random_.OneIn(2)) {
        // Something that is alive at the worst step.
        for (int tries = 0; tries < 30; ++tries) {
          if (!is_gap(decision)) break;
          const Gap& gap = simulator_->gaps()[decision];
          if (gap.begin < current.peak_op && gap.end >= current.peak_op) break;
          decision = PickDecision();
        }
      } else if (current.overflow <= 0 && !changed_.empty() && random_.OneIn(4)) {
        decision = changed_[random_.Below(static_cast<int>(changed_.size()))];
      }
      first = decision;
    } else if (random_.OneIn(2)) {
      decision = PickDecision();
    } else {
      decision = std::max(0, std::min(num_decisions() - 1, first + random_.Below(21) - 10));
    }
    int value;
    do {
      value = random_.Below(num_values(decision));
    } while (value == Get(decision));
    Set(decision, value);
  }
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

int Search::Length(int most) {
  int length = 1;
  while (length < most && !random_.OneIn(kLength)) ++length;
  return length;
}

// Two values that are decided differently change places: a checkpoint moves, to the same place of
// another block or a few ops on.
void Search::ProposeShift() {
  const int size = static_cast<int>(crossing_.size());
  for (int tries = 0; tries < 20; ++tries) {
    const int place = random_.Below(size), one = crossing_[place];
    int other = one;
    if (random_.OneIn(2)) {
      const std::vector<int>& family = families_[family_of_[one]];
      const int next = place_in_family_[one] + random_.Below(5) - 2;
      if (next >= 0 && next < static_cast<int>(family.size())) other = family[next];
    } else {
      const int next = place + (random_.OneIn(2) ? 1 : -1) * Length(size);
      if (next >= 0 && next < size) other = crossing_[next];
    }
    const int here = Get(one), there = Get(other);
    if (here == there) continue;
    const int from = simulator_->advance(one);
    Set(one, there);
    SetAdvance(one, simulator_->advance(other));
    Set(other, here);
    SetAdvance(other, from);
    return;
  }
}

// One decision for a stretch of the forward pass: kept; dropped, and kept once made again; or
// dropped after each op until backward comes to the stretch, or to what follows it.
void Search::ProposeStretch() {
  const std::vector<Gap>& gaps = simulator_->gaps();
  const int size = static_cast<int>(crossing_.size()), begin = random_.Below(size);
  const int end = std::min(size, begin + Length(size)), length = end - begin;
  int from = simulator_->num_ops();
  for (int i = begin; i < end; ++i) from = std::min(from, gaps[crossing_[i]].end);
  static const Choice values[] = {kDropTransient,  kDropTransient,  kDropTransient,
                                  kDropThenRetain, kDropThenRetain, kKeep};
  const int value = values[random_.Below(6)];
  const bool dropped_only = value != kKeep && random_.OneIn(2);
  if (random_.OneIn(3)) {
    from = std::min(from, gaps[crossing_[std::min(size - 1, end + random_.Below(1 + length))]].end);
  } else if (random_.OneIn(2)) {
    from = -1;
  }
  for (int i = begin; i < end; ++i) {
    const int gap = crossing_[i];
    if (dropped_only && simulator_->choice(gap) == kKeep) continue;
    Set(gap, value);
    if (value == kDropTransient) SetAdvance(gap, from);
  }
}

}  // namespace memonger
