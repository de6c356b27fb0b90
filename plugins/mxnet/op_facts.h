/* What the planner must know about an op before it runs it a second time.
 * The only place where these rules are written; the capture hands them to Python. */
#ifndef MEMONGER_MXNET_OP_FACTS_H_
#define MEMONGER_MXNET_OP_FACTS_H_

#include <nnvm/node.h>

#include <cstdint>
#include <string>
#include <vector>

namespace memonger {

// Empty when running the node again gives the same result and changes nothing else, else the
// reason why it may not run again.
std::string KeepReason(const nnvm::Node& node);

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

// The backward op needs the state object of the very run whose values it reads: what it holds is
// more than a cache (the reserve of an RNN, the members of a Python operator).
bool NeedsStateOfItsRun(const nnvm::Node& backward);

// The op updates moving averages with an attribute "momentum", 1 meaning no update.
bool UpdatesAverages(const nnvm::Node& node);

// Value of an attribute, empty without one.
std::string Attribute(const nnvm::Node& node, const char* key);

// "True", "true" or "1".
bool Truthy(const std::string& text);

}  // namespace memonger

#endif  // MEMONGER_MXNET_OP_FACTS_H_
