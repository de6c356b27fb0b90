// The steps that restarts are made of. Each changes the decisions, and ends at `work_end` at the
// latest (see Effort::Spent). `current` is the outcome of the decisions, before and after.
#ifndef MEMONGER_CORE_SEARCH_STEPS_H_
#define MEMONGER_CORE_SEARCH_STEPS_H_

#include <cstdint>
#include <limits>

#include "core/search/search.h"

namespace memonger {

// repair.cc
// Makes the decisions fit; false where that fails.
bool Repair(Search* search, Outcome* current, int64_t work_end);
// Takes back every change that is not needed.
void Prune(Search* search, Outcome* current, int64_t work_end);
// A few changes of the current decisions.
void Perturb(Search* search);
// Iterated local search: perturb the best, repair, prune.
void IterateRepairs(Search* search, int64_t work_end);

// swap.cc
// Takes two changes back for one more, where that is cheaper.
void SwapTwoForOne(Search* search, Outcome* current, int64_t work_end);

// crossover.cc
// A population of plans in place of one.
void CrossPlans(Search* search, int64_t work_end);

// seeds.cc
// Starting points that need no search. `frugal`: those that take the least memory, and much time.
void TrySeeds(Search* search, bool frugal, int64_t work_end);
// Variants that do not shut each other out, but those that add more than so much time.
void UseFriendlyVariants(Search* search,
                         double most_added_s = std::numeric_limits<double>::infinity());

// fit_groups.cc
// Makes the decisions fit by groups, one by one where that does not do, and takes back what need
// not be. `variants`: those too.
void FitGroups(Search* search, Outcome* current, bool variants, int64_t repair_end,
               int64_t work_end);

// walk.cc
// Where simulated annealing begins and ends, in units of Target::Unit().
struct Temperature {
  double start, end;
};
void Anneal(Search* search, Outcome current, Temperature temperature, int64_t work_end);

}  // namespace memonger

#endif  // MEMONGER_CORE_SEARCH_STEPS_H_
