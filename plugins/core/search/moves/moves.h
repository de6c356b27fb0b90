// The moves of the walk: each sets a few decisions and leaves the judgement to its caller.
#ifndef MEMONGER_CORE_SEARCH_MOVES_MOVES_H_
#define MEMONGER_CORE_SEARCH_MOVES_MOVES_H_

#include "core/random.h"
#include "core/search/search.h"

namespace memonger {

// Makes one move, drawn from the table in moves.cc. `current`: of the decisions before it.
void ProposeMove(Search* search, const Outcome& current);

// One decision, or up to three.
void ProposeSingle(Search* search, const Outcome& current);
// One decision for a run of like ops: repeated blocks change together.
void ProposeBlock(Search* search, const Outcome& current);
// One decision for a stretch of the forward pass.
void ProposeStretch(Search* search, const Outcome& current);
// Two values that are decided differently change places: a checkpoint moves.
void ProposeShift(Search* search, const Outcome& current);

// Length of a stretch, and how far a checkpoint moves: geometric, at most `most`.
int DrawLength(Random* random, int most);

}  // namespace memonger

#endif  // MEMONGER_CORE_SEARCH_MOVES_MOVES_H_
