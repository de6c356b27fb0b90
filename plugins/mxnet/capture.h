/* Writes what MXNet's memory planner was given and decided, as JSON, for memonger/mx/capture/record.py. */
#ifndef MEMONGER_MXNET_CAPTURE_H_
#define MEMONGER_MXNET_CAPTURE_H_

#include <nnvm/graph.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace memonger {

// Starts recording in this thread. Captures nest: an outer one has what an inner one has, too.
void BeginCapture();
// Ends the innermost capture; a JSON list with one object for each memory plan made meanwhile.
std::string EndCapture();
bool Capturing();

// What MXPlanMemory consumes and no longer has afterwards.
struct PlanInput {
  std::pair<uint32_t, uint32_t> node_range;
  std::vector<uint32_t> references;  // empty: not given
  std::vector<int> storage;          // empty: not given
};

// Adds one record. `graph` is the planned graph; `pool_bytes` what its executor allocates for
// internal tensors; `replayed` whether our own replay made the same in-place choices.
void Record(const nnvm::Graph& graph, const PlanInput& input, int64_t pool_bytes, bool replayed);

}  // namespace memonger

#endif  // MEMONGER_MXNET_CAPTURE_H_
