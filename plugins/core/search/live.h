// The search for decisions whose live bytes fit: the restarts that every other search is built on.
#ifndef MEMONGER_CORE_SEARCH_LIVE_H_
#define MEMONGER_CORE_SEARCH_LIVE_H_

#include <cstdint>

#include "core/search/search.h"
#include "core/search/steps.h"

namespace memonger {

// Runs the table of restarts from the unplanned step and from `warm`; the target has the best.
void SearchLive(Search* search, const Solution& warm, int64_t work_end);

// Anneals from the best, and prunes what that finds; `until` is where the round ends, and annealing
// `gap` of the work before.
void AnnealAndPrune(Search* search, Temperature temperature, const WorkShare& share, double until,
                    double gap);

}  // namespace memonger

#endif  // MEMONGER_CORE_SEARCH_LIVE_H_
