#include <algorithm>

#include "core/search/moves/moves.h"

namespace memonger {

namespace {

// One move in so many makes a second change.
const int kSecond = 3;
// One move in so many makes one more.
const int kThird = 8;
// Gaps behind the last use seldom matter: one in so many that are drawn stays.
const int kTrailing = 8;
// Draws until a value is alive at the worst step.
const int kTries = 30;
// One move in so many of a plan that fits changes what is not at its default.
const int kOffDefault = 4;
// How far from the first change the others are, in decisions.
const int kNear = 10;

int PickDecision(Search* search) {
  const Decisions& decisions = search->decisions;
  const int decision = search->random.Below(decisions.size());
  if (!decisions.is_gap(decision) || !search->simulator->gaps()[decision].trailing ||
      search->random.OneIn(kTrailing)) {
    return decision;
  }
  return search->random.Below(decisions.size());
}

int PickFirst(Search* search, const Outcome& current) {
  const Decisions& decisions = search->decisions;
  int decision = PickDecision(search);
  if (current.overflow > 0 && search->random.OneIn(2)) {
    // Something that is alive at the worst step.
    for (int tries = 0; tries < kTries; ++tries) {
      if (!decisions.is_gap(decision)) break;
      const Gap& gap = search->simulator->gaps()[decision];
      if (gap.begin < current.peak_op && gap.end >= current.peak_op) break;
      decision = PickDecision(search);
    }
  } else if (current.overflow <= 0 && !decisions.off_default().empty() &&
             search->random.OneIn(kOffDefault)) {
    const std::vector<int>& off = decisions.off_default();
    decision = off[search->random.Below(static_cast<int>(off.size()))];
  }
  return decision;
}

}  // namespace

void ProposeSingle(Search* search, const Outcome& current) {
  Decisions& decisions = search->decisions;
  Random& random = search->random;
  int count = 1;
  if (random.OneIn(kSecond)) ++count;
  if (random.OneIn(kThird)) ++count;
  int first = 0;
  for (int i = 0; i < count; ++i) {
    int decision;
    if (i == 0) {
      decision = first = PickFirst(search, current);
    } else if (random.OneIn(2)) {
      decision = PickDecision(search);
    } else {
      decision =
          std::max(0, std::min(decisions.size() - 1, first + random.Below(2 * kNear + 1) - kNear));
    }
    int value;
    do {
      value = random.Below(decisions.num_values(decision));
    } while (value == decisions.Get(decision));
    decisions.Set(decision, value);
  }
}

}  // namespace memonger
