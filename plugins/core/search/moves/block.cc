#include <algorithm>

#include "core/search/moves/moves.h"

namespace memonger {

void ProposeBlock(Search* search, const Outcome&) {
  Decisions& decisions = search->decisions;
  const int gap = search->random.Below(decisions.num_gaps());
  const std::vector<int>& family = search->structure.family(gap);
  const int size = static_cast<int>(family.size());
  int length = 2;
  while (length < size && search->random.OneIn(2)) length *= 2;
  const int begin = search->structure.place_in_family(gap);
  const int value = search->random.Below(decisions.num_values(gap));
  for (int i = begin; i < std::min(size, begin + length); ++i) decisions.Set(family[i], value);
}

}  // namespace memonger
