/* Internal tensors of an executor at offsets of one piece of memory.
 *
 * MXNet gives each storage id a whole array, used from its first byte. Here the tensors lie where
 * storage::Arena puts them, so that an executor takes little more than what is alive at its worst
 * step. Three things make that work on an unchanged libmxnet:
 *  1. the memory pass remembers the place of each tensor in an attribute of the graph (PlanArena);
 *  2. tensors that share bytes have different engine variables, so the engine would run their ops
 *     at once: every op of such an executor asks for the device's temporary space, and ops that
 *     share it run in the order in which they were pushed (Serialize);
 *  3. when the executor is made, the arrays that its ops read and write are replaced by arrays in
 *     the arena (Place). The arrays that MXNet planned are never touched, so they take no memory.
 *     Those in the arena carry the temporary space's engine variable: a monitor that reads one
 *     waits for the ops before it, and the ops after it wait for the monitor.
 * Without step 3 (a bind that memonger does not see) the executor is right, and takes more. */
#ifndef MEMONGER_MXNET_ARENA_H_
#define MEMONGER_MXNET_ARENA_H_

#include <mxnet/base.h>
#include <mxnet/executor.h>
#include <nnvm/graph.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/memory/storage.h"

namespace memonger {

// A bind whose executor will be handed to Place starts in this thread.
void ExpectPlacement();

// Notes that the network being bound asks for an arena, where an op of this graph carries the mark.
// Fusion on a GPU may rebuild that op after the gradients are made, so both passes look.
void LookForArenaMark(const std::vector<nnvm::NodeEntry>& outputs);

// The executor being bound will be handed to Place, and its network asks for an arena.
bool WantsArena();

// Fills program->own_buffer: tensors that must keep an array of their own, because an op reads or
// writes them outside of the order of pushes, or may rearrange them later. The Python side of the
// rule is memonger/memory/liveness.py.
void MarkOwnBuffers(const nnvm::Graph& graph, storage::Program* program);

// Remembers the places in the graph, and makes all of its ops run one after the other. `ids`
// becomes an assignment of storage ids where each tensor outside of the arena has an id of its own
// block.
void PlanArena(const storage::Blocks& blocks, const storage::Assignment& arena, nnvm::Graph* graph,
               std::vector<int>* ids);

// Ends what ExpectPlacement began. Gives the executor its arena, or that of `shared` when it is
// large enough; does nothing for executors without places. Throws dmlc::Error when memory runs out,
// std::runtime_error when the executor is not laid out as expected.
void Place(mxnet::Executor* executor, mxnet::Executor* shared);

}  // namespace memonger

#endif  // MEMONGER_MXNET_ARENA_H_
