#include "core/search/moves/moves.h"

namespace memonger {

namespace {

// From so many gaps on a graph is large: like ops in a row change together more often.
const int kLarge = 2000;
// Mean of DrawLength.
const int kLength = 8;

bool HasGaps(const Search& search) { return search.decisions.num_gaps() > 0; }
bool HasCrossing(const Search& search) { return !search.structure.crossing().empty(); }

struct Move {
  Part part;
  bool (*possible)(const Search&);
  int one_in, one_in_if_large;  // moves that come so far in the table
  void (*propose)(Search*, const Outcome&);
};

// The first that is drawn is made, and a single one where none is.
const Move kMoves[] = {
    {kBlocks, HasGaps, 24, 4, ProposeBlock},
    {kStretches, HasCrossing, 6, 6, ProposeStretch},
    {kShifts, HasCrossing, 4, 4, ProposeShift},
};

}  // namespace

void ProposeMove(Search* search, const Outcome& current) {
  const bool large = search->decisions.num_gaps() > kLarge;
  for (const Move& move : kMoves) {
    if (search->Has(move.part) && move.possible(*search) &&
        search->random.OneIn(large ? move.one_in_if_large : move.one_in)) {
      return move.propose(search, current);
    }
  }
  ProposeSingle(search, current);
}

int DrawLength(Random* random, int most) {
  int length = 1;
  while (length < most && !random->OneIn(kLength)) ++length;
  return length;
}

}  // namespace memonger
