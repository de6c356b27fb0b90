#include "core/search/moves/moves.h"

namespace memonger {

namespace {

// From so many gaps on a graph is large: like ops in a row change together more often.
const int kLarge = 2000;
// Mean of DrawLength.
const int kLength = 8;

bool HasGaps(const Board& board) { return board.decisions.num_gaps() > 0; }
bool HasCrossing(const Board& board) { return !board.structure.crossing().empty(); }

struct Move {
  Part part;
  bool (*possible)(const Board&);
  int one_in, one_in_if_large;  // moves that come so far in the table
  void (*propose)(Board*, const Outcome&);
};

// The first that is drawn is made, and a single one where none is.
const Move kMoves[] = {
    {kBlocks, HasGaps, 24, 4, ProposeBlock},
    {kStretches, HasCrossing, 6, 6, ProposeStretch},
    {kShifts, HasCrossing, 4, 4, ProposeShift},
};

}  // namespace

void ProposeMove(Board* board, const Outcome& current) {
  const bool large = board->decisions.num_gaps() > kLarge;
  for (const Move& move : kMoves) {
    if (board->Has(move.part) && move.possible(*board) &&
        board->random.OneIn(large ? move.one_in_if_large : move.one_in)) {
      return move.propose(board, current);
    }
  }
  ProposeSingle(board, current);
}

int DrawLength(Random* random, int most) {
  int length = 1;
  while (length < most && !random->OneIn(kLength)) ++length;
  return length;
}

}  // namespace memonger
