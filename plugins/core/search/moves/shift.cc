#include "core/search/moves/moves.h"

namespace memonger {

namespace {

// Draws until two values are decided differently.
const int kTries = 20;
// How far apart in a family of like ops the two are, at most.
const int kBlocksAway = 2;

}  // namespace

// To the same place of another block, or a few ops on.
void ProposeShift(Search* search, const Outcome&) {
  Decisions& decisions = search->decisions;
  Random& random = search->random;
  const std::vector<int>& crossing = search->structure.crossing();
  const int size = static_cast<int>(crossing.size());
  for (int tries = 0; tries < kTries; ++tries) {
    const int place = random.Below(size), gap = crossing[place];
    int other = gap;
    if (random.OneIn(2)) {
      const std::vector<int>& family = search->structure.family(gap);
      const int next =
          search->structure.place_in_family(gap) + random.Below(2 * kBlocksAway + 1) - kBlocksAway;
      if (next >= 0 && next < static_cast<int>(family.size())) other = family[next];
    } else {
      const int sign = random.OneIn(2) ? 1 : -1;
      const int next = place + sign * DrawLength(&random, size);
      if (next >= 0 && next < size) other = crossing[next];
    }
    const int here = decisions.Get(gap), there = decisions.Get(other);
    if (here == there) continue;
    const int from = search->simulator->advance(gap);
    decisions.Set(gap, there);
    decisions.SetAdvance(gap, search->simulator->advance(other));
    decisions.Set(other, here);
    decisions.SetAdvance(other, from);
    return;
  }
}

}  // namespace memonger
