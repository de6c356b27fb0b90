#include "mxnet/loops.h"

#include <nnvm/op.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <typeinfo>

namespace memonger {

namespace {

// Virtual methods of OpExecutor in the order of their declaration: two destructors, Setup, Run,
// exec_type, var, state. Before them lie the class's offset and its type.
const size_t kBefore = 2, kMethods = 7, kRun = 3;
using Run = void (*)(OpExecutorHead*, mxnet::RunContext, bool);

// The methods of the class that runs loops, with Run replaced.
struct Methods {
  void* all[kBefore + kMethods];
  Run run_at_once;

  explicit Methods(void** theirs) : run_at_once(reinterpret_cast<Run>(theirs[kRun])) {
    std::copy(theirs - kBefore, theirs + kMethods, all);
    all[kBefore + kRun] = reinterpret_cast<void*>(&RunWhenComputed);
  }

  static Methods& Of(void** theirs) {
    static auto* made = new Methods(theirs);
    return *made;
  }

  static void RunWhenComputed(OpExecutorHead* op, mxnet::RunContext context, bool is_gpu) {
    for (const mxnet::NDArray& array : op->in_array)
      if (!array.is_none()) array.WaitToRead();
    for (const mxnet::NDArray& array : op->out_array)
      if (!array.is_none()) array.WaitToWrite();
    Of(op->methods).run_at_once(op, context, is_gpu);
  }
};

// Whether this is an object of StatefulComputeExExecutor, which runs all loops.
bool IsKnown(const OpExecutorHead& op) {
  const auto* type = static_cast<const std::type_info*>(op.methods[-1]);
  return std::strcmp(type->name(), "N5mxnet4exec25StatefulComputeExExecutorE") == 0;
}

}  // namespace

bool IsLoop(const std::string& name) {
  return name == "_foreach" || name == "_backward_foreach" || name == "_while_loop" ||
         name == "_backward_while_loop" || name == "_cond" || name == "_backward_cond";
}

void WaitBeforeLoops(const nnvm::Graph& graph, const OpExecutors& ops) {
  const nnvm::IndexedGraph& index = graph.indexed_graph();
  for (uint32_t id = 0; id < index.num_nodes() && id < ops.size(); ++id) {
    if (index[id].source->is_variable() || !IsLoop(index[id].source->op()->name)) continue;
    auto& op = *reinterpret_cast<OpExecutorHead*>(ops[id].get());
    if (!IsKnown(op)) continue;
    Methods& ours = Methods::Of(op.methods);
    op.methods = ours.all + kBefore;
  }
}

}  // namespace memonger
