/* Operators that do not know MKLDNN's layouts, run without copies that stay.
 *
 * An executor of MXNet gives such an operator copies of what it reads in the default layout, and
 * keeps the memory of each copy as long as it lives (StorageFallbackOpExecutor). In the graphs of
 * planned networks these operators get the arrays as they are, and copies that end with the run.
 * The operators compute the same on the same numbers. */
#ifndef MEMONGER_MXNET_LAYOUTS_H_
#define MEMONGER_MXNET_LAYOUTS_H_

#include <nnvm/graph.h>

namespace memonger {

// The attribute of stateful operators whose implementation on arrays is the one made here: by
// themselves they compute on bare memory.
constexpr const char* kComputesOnMemory = "TMemongerComputesOnMemory";

// Gives every registered operator that computes on blobs an implementation on arrays. None of
// them runs before AvoidCopies chooses it.
void RegisterArrayImplementations();

// Chooses them for the nodes of a planned network on a CPU with MKLDNN; other graphs stay.
void AvoidCopies(nnvm::Graph* graph);

}  // namespace memonger

#endif  // MEMONGER_MXNET_LAYOUTS_H_
