/* Exact recomputation: forward values that backward reads come from clones, as the plan says. */
#ifndef MEMONGER_MXNET_RECOMPUTE_H_
#define MEMONGER_MXNET_RECOMPUTE_H_

#include <nnvm/graph.h>
#include <nnvm/node.h>

#include <map>
#include <string>
#include <vector>

namespace memonger {

// For one recomputed op: label of a consumer -> number of the clone that it reads, 0 being the
// first run. Consumers that are not named read clone 1.
using CloneNumbers = std::map<std::string, int>;

// Reads the attributes of all nodes that `outputs` reach: __memonger_recompute__ and the user's own
// __force_mirroring__, which the first overrules (0: the op runs once). Ops that make a state are
// left out for CachedOp. `marked` is set when an attribute says anything, or the symbol is planned.
// Throws dmlc::Error when one asks for an op that must not run again, or cannot be read.
std::map<const nnvm::Node*, CloneNumbers> ReadPolicies(const std::vector<nnvm::NodeEntry>& outputs,
                                                       bool for_cached_op, bool* marked);

// A clone, or an op whose attributes ask for some.
bool RunsAgain(const nnvm::Node& node);

// Redirects forward -> backward edges of a finished gradient graph to clones. Forward nodes are
// never touched: they belong to the user's symbol, and CachedOp needs the forward graph as a
// prefix. A CachedOp may run a part of the gradients, and clones then bring no others along.
void InsertClones(const std::vector<nnvm::NodeEntry>& forward_outputs,
                  const std::map<const nnvm::Node*, CloneNumbers>& policies, bool for_cached_op,
                  nnvm::Graph* gradients);

}  // namespace memonger

#endif  // MEMONGER_MXNET_RECOMPUTE_H_
