/* At load: does the libmxnet.so in hand have the layouts this plugin was compiled for?
 * Every step exchanges live objects in one direction or the other; nothing is registered yet. */
#include "mxnet/self_check.h"

#include <mxnet/base.h>
#include <mxnet/c_api.h>
#include <mxnet/op_attr_types.h>
#include <nnvm/graph.h>
#include <nnvm/op_attr_types.h>
#include <nnvm/pass_functions.h>
#include <nnvm/symbolic.h>

#include <cstddef>
#include <string>
#include <vector>

// Frozen layouts of the 1.9.1 wheel; a different compiler or macro set fails here.
#ifdef MEMONGER_MXNET_ABI_GCC48_H_
static_assert(sizeof(nnvm::NodeAttrs) == 120, "nnvm::NodeAttrs");
static_assert(sizeof(nnvm::Node) == 200, "nnvm::Node");
static_assert(sizeof(nnvm::NodeEntry) == 24, "nnvm::NodeEntry");
static_assert(sizeof(nnvm::Graph) == 88, "nnvm::Graph");
static_assert(sizeof(nnvm::IndexedGraph) == 240, "nnvm::IndexedGraph");
static_assert(sizeof(mxnet::TShape) == 48, "mxnet::TShape");
static_assert(sizeof(mxnet::TBlob) == 112, "mxnet::TBlob");
static_assert(sizeof(mxnet::OpContext) == 88, "mxnet::OpContext");
#endif

namespace {
#define STEP(cond, what)        \
  do {                          \
    if (!(cond)) return (what); \
  } while (0)

std::string Check() {
  int version = 0;
  STEP(MXGetVersion(&version) == 0 && version == 10901, "MXNet version is not 1.9.1");
  // 1. objects made by libmxnet, read here
  SymbolHandle var;
  STEP(MXSymbolCreateVariable("memonger probe", &var) == 0, "cannot create a variable");
  STEP(MXSymbolSetAttr(var, "__memonger_key__", "memonger value") == 0, "cannot set an attribute");
  auto* sym = static_cast<nnvm::Symbol*>(var);
  STEP(sym->outputs.size() == 1 && sym->outputs[0].index == 0, "nnvm::Symbol layout");
  const nnvm::Node& node = *sym->outputs[0].node;
  STEP(node.attrs.op == nullptr && node.attrs.name == "memonger probe", "nnvm::NodeAttrs layout");
  STEP(node.attrs.dict.size() == 1 && node.attrs.dict.at("__memonger_key__") == "memonger value",
       "std::unordered_map layout");
  STEP(node.inputs.empty() && node.control_deps.empty() && node.info.empty() &&
           node.inputs.data() == nullptr && node.control_deps.data() == nullptr,
       "nnvm::Node layout");
  // 2. objects made here, read by libmxnet (and freed by it), result read here
  {
    nnvm::NodeEntry x = sym->outputs[0];
    nnvm::NodeEntry y = nnvm::MakeNode("Activation", "memonger act", {x}, {{"act_type", "tanh"}});
    nnvm::Graph g;
    g.outputs = {y};
    STEP(g.indexed_graph().num_nodes() == 2 && g.indexed_graph().input_nodes().size() == 1 &&
             g.indexed_graph().mutable_input_nodes().empty() &&
             g.indexed_graph().node_id(y.node.get()) == 1,
         "nnvm::IndexedGraph layout");
    const std::string json = nnvm::pass::SaveJSON(g);
    STEP(json.find("memonger act") != std::string::npos &&
             json.find("\"act_type\": \"tanh\"") != std::string::npos,
         "SaveJSON");
    // 3. std::functions made by libmxnet, called here
    const auto& shape = nnvm::Op::GetAttr<mxnet::FInferShape>("FInferShape");
    mxnet::ShapeVector in{mxnet::TShape({2, 3, 4})}, out(1);
    STEP(shape[y.node->op()](y.node->attrs, &in, &out) && out[0] == in[0], "FInferShape");
    STEP(y.node->num_inputs() == 1 && y.node->num_outputs() == 1, "Op layout");
    const auto& grad = nnvm::Op::GetAttr<nnvm::FGradient>("FGradient");
    std::vector<nnvm::NodeEntry> d = grad[y.node->op()](y.node, {nnvm::NodeEntry(x)});
    STEP(d.size() == 1 && d[0].node->op()->name == "_backward_Activation", "FGradient");
    // 4. std::functions made here, called by libmxnet
    int calls = 0;
    nnvm::Graph s;
    s.outputs = {y};
    s.attrs["grad_ys"] = std::make_shared<nnvm::any>(std::vector<nnvm::NodeEntry>{y});
    s.attrs["grad_xs"] = std::make_shared<nnvm::any>(std::vector<nnvm::NodeEntry>{x});
    nnvm::NodeEntry head(nnvm::Node::Create(), 0, 0);
    head.node->attrs.name = "memonger head";
    s.attrs["grad_ys_out_grad"] = std::make_shared<nnvm::any>(std::vector<nnvm::NodeEntry>{head});
    s.attrs["grad_mirror_fun"] = std::make_shared<nnvm::any>(
        std::function<int(const nnvm::Node&)>([&calls](const nnvm::Node& m) {
          ++calls;
          return m.is_variable() ? 0 : 1;
        }));
    nnvm::Graph r = nnvm::ApplyPass(s, "MXGradient");
    STEP(calls == 2 && r.outputs.size() == 1, "MXGradient");
    bool mirrored = false;
    for (auto& e : r.outputs[0].node->inputs)
      mirrored = mirrored || e.node->attrs.name == "memonger act_mirror";
    STEP(mirrored, "grad_mirror_fun");
  }
  MXSymbolFree(var);
  return std::string();
}
}  // namespace

namespace memonger {

std::string SelfCheck() {
  try {
    return Check();
  } catch (const std::exception& error) {
    return std::string("exception: ") + error.what();
  }
}

}  // namespace memonger
