// Local search for the cheapest decisions within a budget: a table of restarts, all on exact
// evaluations.
#ifndef MEMONGER_CORE_SEARCH_RESTARTS_H_
#define MEMONGER_CORE_SEARCH_RESTARTS_H_

#include "core/pool.h"
#include "core/search/options.h"
#include "core/simulator.h"

namespace memonger {

struct Answer {
  Solution best;  // feasible, or the one with the least overflow; the simulator has its decisions
  StopReason reason;
};

// Runs all restarts. Without a meter the peak of live bytes is what has to fit.
Answer RunSearch(Simulator* simulator, const SearchOptions& options, PoolMeter* meter,
                 PollFunction poll);

}  // namespace memonger

#endif  // MEMONGER_CORE_SEARCH_RESTARTS_H_
