// The planning problem as flat arrays: what memonger.graph.Graph says, ready for simulation.
//
// Ids are those of the graph. An op has one implementation for the base graph and one more for
// each variant that touches it; a variant is a set of (op, implementation) pairs.
#ifndef MEMONGER_CORE_PROBLEM_H_
#define MEMONGER_CORE_PROBLEM_H_

#include <cstdint>
#include <string>
#include <vector>

namespace memonger {

struct InplaceOption {
  int input;   // position in Implementation::inputs
  int output;  // position in Implementation::outputs
  bool identity;
};

struct Implementation {
  // False when the work is part of another op of the variant: there is no step.
  bool runs = true;
  double time = 0;
  int64_t workspace_bytes = 0;
  // Tensors whose values are read, each once, that some op makes; in input order.
  std::vector<int> reads;
  // Tensors at every input position, and whether their values are never read.
  std::vector<int> inputs;
  std::vector<char> ignored;
  std::vector<int> outputs;
  std::vector<InplaceOption> inplace;
  // Those of `inplace` that can ever apply: the input is read once, or only renamed.
  std::vector<InplaceOption> shares;
  bool uses_state = false;       // continues the state object of Op::state_of
  bool adds_into_first = false;  // see storage.h
};

struct Op {
  bool is_backward = false;
  bool can_rerun = true;
  // Forward op whose state object a run continues; -1 without.
  int state_of = -1;
  int device = 0;
  int stream = 0;                               // 0 is compute; see memonger/graph/clock.py
  std::vector<Implementation> implementations;  // the first is the base graph's
};

struct Variant {
  std::vector<std::pair<int, int>> choices;  // op, implementation
  std::vector<int> conflicts;                // variants that touch the same ops
};

struct Problem {
  std::vector<Op> ops;
  std::vector<int64_t> tensor_bytes;  // 0 for tensors outside the pool
  std::vector<int64_t> host_bytes;    // of the host; such a tensor takes no others
  std::vector<int64_t> clone_bytes;   // of what further runs of the op make: always in the pool
  std::vector<int64_t> tensor_elements;
  std::vector<int> tensor_dtype;       // a number for each dtype
  std::vector<int> tensor_item_bytes;  // of one element
  std::vector<char> tensor_is_external;
  std::vector<char> tensor_is_view;  // of another, in whose memory it lies
  std::vector<char> tensor_is_output;
  std::vector<char> tensor_has_own_buffer;  // must not lie in an arena
  std::vector<char> tensor_is_kept;         // never read from a clone: Op.kept_outputs
  std::vector<int> tensor_handed_on_by;     // Op.hands_on: -1, or the op with its value, too
  std::vector<Variant> variants;
  int num_streams = 1;
  bool two_pools = false;  // forward and backward have a pool each (CachedOp)
  // Ops that the user pinned: 0 free, 1 never run again, 2 never kept for backward.
  std::vector<char> pins;
  int max_clones = 0;                // 0 is no limit
  int64_t objects_bytes_per_op = 0;  // of each that runs, beside its tensors
  int64_t host_budget = -1;          // for the tensors on the host; -1 is no limit
  int64_t host_bytes_before = 0;     // of those that exist before the step

  // Reads the format that memonger/solve/search/flat_problem.py writes; false when it contradicts
  // itself.
  bool Parse(const int64_t* data, int64_t size, const double* times, int64_t num_times);
};

}  // namespace memonger

#endif  // MEMONGER_CORE_PROBLEM_H_
