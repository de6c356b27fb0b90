/* Loops that wait for what they read.
 *
 * An executor of MXNet 1.9.1 runs ops with graphs inside (foreach, while_loop, cond) at once, in
 * the thread that pushes all others to the engine. With MKLDNN it first looks at the layouts of
 * their arrays and copies some, while other ops still compute these arrays: gradients are wrong,
 * or the process ends. Executors that memonger sees wait before such an op. */
#ifndef MEMONGER_MXNET_LOOPS_H_
#define MEMONGER_MXNET_LOOPS_H_

#include <mxnet/base.h>
#include <mxnet/ndarray.h>
#include <mxnet/op_attr_types.h>
#include <nnvm/graph.h>

#include <memory>
#include <string>
#include <vector>

namespace mxnet {
namespace exec {
class OpExecutor;
}  // namespace exec
}  // namespace mxnet

namespace memonger {

// The beginning of a class of libmxnet 1.9.1 whose header the wheel does not carry
// (src/executor/exec_pass.h).
struct OpExecutorHead {
  void** methods;
  std::vector<mxnet::NDArray> in_array, out_array;
  std::vector<mxnet::OpReqType> req;
  mxnet::OpContext op_ctx;
};
using OpExecutors = std::vector<std::shared_ptr<mxnet::exec::OpExecutor>>;

// The op runs a graph of its own, perhaps several times; or it is the gradient of such an op.
bool IsLoop(const std::string& name);

// Makes the loops of an executor wait; `ops` are those of its graph. Does nothing where MXNet
// runs them by a class that is not known here.
void WaitBeforeLoops(const nnvm::Graph& graph, const OpExecutors& ops);

}  // namespace memonger

#endif  // MEMONGER_MXNET_LOOPS_H_
