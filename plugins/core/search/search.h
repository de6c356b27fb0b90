// The parts of a search that its steps work on.
//
// Each part has its own state and knows no step. A step is a function of the search: it changes the
// decisions, offers what fits to the target, and ends when the effort is spent.
#ifndef MEMONGER_CORE_SEARCH_SEARCH_H_
#define MEMONGER_CORE_SEARCH_SEARCH_H_

#include <memory>

#include "core/random.h"
#include "core/search/decisions.h"
#include "core/search/effort.h"
#include "core/search/groups.h"
#include "core/search/options.h"
#include "core/search/structure.h"
#include "core/search/target.h"
#include "core/simulator.h"

namespace memonger {

struct Search {
  Search(Simulator* simulator, const SearchOptions& options, PoolMeter* meter, PollFunction poll);
  Search(const Search&) = delete;

  bool Has(Part part) const { return !(options.without & part); }
  // Found when first asked for; most searches of small graphs never do.
  const Groups& groups();

  Simulator* const simulator;
  const SearchOptions options;
  Random random;
  Decisions decisions;
  Structure structure;
  Target target;
  Effort effort;
  // Of the overflow in the walk's value; adjusts itself.
  double overflow_weight = 0;

 private:
  std::unique_ptr<Groups> groups_;
};

}  // namespace memonger

#endif  // MEMONGER_CORE_SEARCH_SEARCH_H_
