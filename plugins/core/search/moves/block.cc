#include <algorithm>

#include "core/search/moves/moves.h"

namespace memonger {

void ProposeBlock(Board* board, const Outcome&) {
  Decisions& decisions = board->decisions;
  const int gap = board->random.Below(decisions.num_gaps());
  const std::vector<int>& family = board->structure.family(gap);
  const int size = static_cast<int>(family.size());
  int length = 2;
  while (length < size && board->random.OneIn(2)) length *= 2;
  const int begin = board->structure.place_in_family(gap);
  const int value = board->random.Below(decisions.num_values(gap));
  for (int i = begin; i < std::min(size, begin + length); ++i) decisions.Set(family[i], value);
}

}  // namespace memonger
