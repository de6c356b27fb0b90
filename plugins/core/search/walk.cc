// Simulated annealing on cost + weight * overflow; the weight adjusts itself so that the walk
// stays at the edge of feasibility (Kirkpatrick, Gelatt and Vecchi 1983; the adjustment is that of
// strategic oscillation in tabu search, Glover 1989).
#include <cmath>

#include "core/search/moves/moves.h"
#include "core/search/steps.h"

namespace memonger {

namespace {

// After so many moves a walk that overflows makes overflow dearer, one that fits cheaper.
const int kMovesPerWeighing = 100;
// By this factor overflow becomes dearer.
const double kDearer = 1.02;
// By this factor it becomes cheaper.
const double kCheaper = 0.993;
// Moves between two looks at the temperature.
const int kMovesPerCooling = 64;

}  // namespace

void Anneal(Search* search, Outcome current, Temperature temperature, int64_t work_end) {
  Decisions& decisions = search->decisions;
  Target& target = search->target;
  Effort& effort = search->effort;
  double& weight = search->overflow_weight;
  if (!current.valid || decisions.size() == 0 || !search->Has(kAnnealing)) return;
  const int64_t work_begin = effort.Spent();
  if (work_end <= work_begin) return;
  const double hot = temperature.start * target.Unit(), cold = temperature.end * target.Unit();
  if (!(hot > 0) || !(cold > 0)) return;
  double value = current.cost + weight * current.overflow;
  double heat = hot;
  for (int64_t move = 1; !effort.OutOf(work_end); ++move) {
    if (move % kMovesPerCooling == 1) {
      const double done = static_cast<double>(effort.Spent() - work_begin) /
                          static_cast<double>(work_end - work_begin);
      heat = hot * std::pow(cold / hot, done);
    }
    ProposeMove(search, current);
    // The largest value that will be accepted, drawn first, lets the simulation stop early.
    const double limit = value - heat * std::log(search->random.Unit());
    const Outcome next = target.Evaluate(limit);
    const double next_value = next.cost + weight * next.overflow;
    if (next.valid && next_value <= limit) {
      decisions.Commit();
      current = next;
      if (target.measures_pool() && next.overflow > 0) current.peak_op = target.WorstOp(next);
      value = next_value;
      if (next.overflow <= 0 && search->options.smallest) {
        target.KeepSmallest(next);
        current = target.Evaluate();
        value = current.cost + weight * current.overflow;
      } else if (next.overflow <= 0) {
        if (!target.best().feasible || next.cost < target.best().cost) target.Offer(next);
      }
    } else {
      decisions.Undo();
    }
    if (move % kMovesPerWeighing == 0) {
      weight *= current.overflow > 0 ? kDearer : kCheaper;
      value = current.cost + weight * current.overflow;
    }
  }
}

}  // namespace memonger
