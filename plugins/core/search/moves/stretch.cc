#include <algorithm>

#include "core/search/moves/moves.h"

namespace memonger {

// The stretch is kept; dropped, and kept once made again; or dropped after each op until backward
// comes to the stretch, or to what follows it.
void ProposeStretch(Search* search, const Outcome&) {
  Decisions& decisions = search->decisions;
  Random& random = search->random;
  const std::vector<Gap>& gaps = search->simulator->gaps();
  const std::vector<int>& crossing = search->structure.crossing();
  const int size = static_cast<int>(crossing.size()), begin = random.Below(size);
  const int end = std::min(size, begin + DrawLength(&random, size)), length = end - begin;
  int from = search->simulator->num_ops();
  for (int i = begin; i < end; ++i) from = std::min(from, gaps[crossing[i]].end);
  static const Choice values[] = {kDropTransient,  kDropTransient,  kDropTransient,
                                  kDropThenRetain, kDropThenRetain, kKeep};
  const int value = values[random.Below(6)];
  const bool dropped_only = value != kKeep && random.OneIn(2);
  if (random.OneIn(3)) {
    const int behind = std::min(size - 1, end + random.Below(1 + length));
    from = std::min(from, gaps[crossing[behind]].end);
  } else if (random.OneIn(2)) {
    from = -1;
  }
  for (int i = begin; i < end; ++i) {
    const int gap = crossing[i];
    if (dropped_only && decisions.Get(gap) == kKeep) continue;
    decisions.Set(gap, value);
    if (value == kDropTransient) decisions.SetAdvance(gap, from);
  }
}

}  // namespace memonger
