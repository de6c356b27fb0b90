/* What the planner must know about an op by its name: whether it may run a second time, and where
 * its values may lie. The only place where these rules are written; the capture hands them to
 * Python. */
#ifndef MEMONGER_MXNET_OP_FACTS_H_
#define MEMONGER_MXNET_OP_FACTS_H_

#include <nnvm/node.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace memonger {

// Why nodes of a forward graph may not run again. Nodes that are not in it give the same result
// when they run again and change nothing else, and nobody refers to the memory of their first run.
std::unordered_map<const nnvm::Node*, std::string> KeepReasons(
    const std::vector<const nnvm::Node*>& forward);

// The op's state may refer to the arrays of the run that made it, and the gradient then reads
// these, whatever inputs it is given: loops do so, Python operators can, and so does MKLDNN's RNN.
// True for all whose state is handed arrays rather than bare memory.
bool MayReferToArrays(const nnvm::Node& node);

// Outputs that stay with the first run even when the op runs again: the statistics of the
// normalisation ops. They are tiny, and LayerNorm and GroupNorm do not write them at all when
// only they are needed.
std::vector<uint32_t> KeptOutputs(const nnvm::Node& node);

// Why a user's wish to run the node again is an error; empty where the wish is only in vain.
std::string RefusalReason(const nnvm::Node& node);

// The op makes a state object at each run. CachedOp without static memory has no room for those of
// clones (DynamicForward makes the vector of states as long as the forward graph; a clone's would
// be written behind its end), and gradients do not know which CachedOp they are for.
bool MakesState(const nnvm::Node& node);

// The op updates moving averages with an attribute "momentum", 1 meaning no update.
bool UpdatesAverages(const nnvm::Node& node);

// Not run by the engine in the order of pushes: asynchronous, nested, or copies between devices.
bool RunsByItself(const std::string& name);

// Positions of values, outputs behind inputs, that must have buffers of their own: all of an op
// that runs by itself, and the weight that MKL-DNN rearranges for inference, some time after the op
// ran. (It leaves that of memonger_bn_relu_convolution alone, which is listed so that the same
// tensors have buffers of their own with that variant and without.)
std::vector<uint32_t> OwnBuffers(const nnvm::Node& node);

// The op adds its second input to its first: a sum of gradients, which MXNet may leave to the op
// that makes the second one.
bool AddsIntoFirst(const nnvm::Node& node);

// Outputs that nobody writes without MKL-DNN: the second one of max pooling is its workspace there.
std::vector<uint32_t> UnwrittenOutputs(const nnvm::Node& node);

// Under stock mirroring the op crashes or gives wrong gradients where nobody reads its first
// output, because MXNet then asks it for nothing: native (de)convolution and cuDNN's BatchNorm
// check for a write request, LayerNorm and GroupNorm return before they write the statistics that
// their gradients read.
bool NeedsReader(const nnvm::Node& node, bool on_gpu);

// Value of an attribute, empty without one.
std::string Attribute(const nnvm::Node& node, const char* key);

// Mark on some op of a planned symbol; "arena": its executors use one.
constexpr char kStorageMark[] = "__memonger_storage__";

// "true" in any case or "1", as MXNet reads flags.
bool Truthy(const std::string& text);

// The attribute is one that a plan puts on ops.
bool IsOfPlan(const std::string& key);

}  // namespace memonger

#endif  // MEMONGER_MXNET_OP_FACTS_H_
