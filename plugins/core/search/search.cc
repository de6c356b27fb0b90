#include "core/search/search.h"

#include <utility>

namespace memonger {

Search::Search(Simulator* simulator, const SearchOptions& options, PoolMeter* meter,
               PollFunction poll)
    : simulator(simulator),
      options(options),
      random(options.seed),
      decisions(simulator),
      structure(*simulator, decisions),
      target(simulator, &decisions, meter, &random, options.budget_bytes),
      effort(simulator, options.work_limit, options.time_limit_s, [this, meter, poll]() {
        const Solution& best = target.best();
        const int64_t bytes = meter ? best.pool : best.peak;
        return poll(best.feasible && bytes >= 0 ? best.cost : -1, best.feasible ? bytes : -1);
      }) {}

const Groups& Search::groups() {
  if (!groups_) groups_.reset(new Groups(*simulator, decisions));
  return *groups_;
}

}  // namespace memonger
