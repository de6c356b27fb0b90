#include "mxnet/passes.h"

#include <mxnet/base.h>
#include <nnvm/op_attr_types.h>
#include <nnvm/pass.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "mxnet/arena.h"
#include "mxnet/layouts.h"
#include "mxnet/op_facts.h"
#include "mxnet/recompute.h"

namespace memonger {

using nnvm::Graph;
using nnvm::NodeEntry;

namespace {

// A pass that does nothing; that it is registered tells a second copy of this library to stay out.
const char kMarker[] = "memonger";

struct State {
  nnvm::PassFunction gradient, plan;  // the bodies that libmxnet registered
  Switches switches;
  std::mutex lock;
};

State& GetState() {
  static State* state = new State();  // never destroyed: libmxnet may call us while exiting
  return *state;
}

// MXNet's own mirroring leaves out what may not run again.
void SpareUnsafe(const std::vector<NodeEntry>& outputs, Graph* graph) {
  using MirrorFunction = std::function<int(const nnvm::Node&)>;
  const MirrorFunction original = graph->GetAttr<MirrorFunction>("grad_mirror_fun");
  std::vector<const nnvm::Node*> nodes;
  nnvm::DFSVisit(outputs, [&](const nnvm::ObjectPtr& n) { nodes.push_back(n.get()); });
  const auto reasons = KeepReasons(nodes);
  const MirrorFunction spared = [original, reasons](const nnvm::Node& node) {
    return reasons.count(&node) ? 0 : original(node);
  };
  graph->attrs["grad_mirror_fun"] = std::make_shared<nnvm::any>(spared);
}

Graph Gradient(Graph graph) {
  const std::vector<NodeEntry> outputs = graph.GetAttr<std::vector<NodeEntry>>("grad_ys");
  LookForArenaMark(outputs);
  if (!GetSwitches().recompute) return GetState().gradient(std::move(graph));
  // Executors always say which nodes they would mirror; CachedOp never does.
  const bool for_cached_op = !graph.HasAttr("grad_mirror_fun");
  bool marked = false;
  const auto policies = ReadPolicies(outputs, for_cached_op, &marked);
  // Without any mark the executor's own mirroring stays: MXNET_BACKWARD_DO_MIRROR=1 means stock.
  if (marked) {
    graph.attrs.erase("grad_mirror_fun");
  } else if (!for_cached_op) {
    SpareUnsafe(outputs, &graph);
  }
  Graph gradients = GetState().gradient(std::move(graph));
  InsertClones(outputs, policies, for_cached_op, &gradients);
  return gradients;
}

Graph Plan(Graph graph) {
  LookForArenaMark(graph.outputs);
  const bool improve = GetSwitches().storage;
  graph = PlanMemory(std::move(graph), GetState().plan, improve);
  if (improve) AvoidCopies(&graph);
  return graph;
}

nnvm::PassFunctionReg* FindPass(const char* name) {
  return const_cast<nnvm::PassFunctionReg*>(dmlc::Registry<nnvm::PassFunctionReg>::Find(name));
}

}  // namespace

std::string WhyNotInstall() {
  if (!FindPass("MXGradient") || !FindPass("MXPlanMemory"))
    return "this libmxnet.so has no passes MXGradient and MXPlanMemory";
  if (FindPass(kMarker)) return "another copy of it is in this process already";
  return std::string();
}

void InstallPasses() {
  dmlc::Registry<nnvm::PassFunctionReg>::Get()->__REGISTER_OR_GET__(kMarker);
  nnvm::PassFunctionReg* gradient = FindPass("MXGradient");
  nnvm::PassFunctionReg* plan = FindPass("MXPlanMemory");
  State& state = GetState();
  state.gradient = gradient->body;
  state.plan = plan->body;
  gradient->body = Gradient;
  plan->body = Plan;
}

void SetSwitches(const Switches& switches) {
  std::lock_guard<std::mutex> guard(GetState().lock);
  GetState().switches = switches;
}

Switches GetSwitches() {
  std::lock_guard<std::mutex> guard(GetState().lock);
  return GetState().switches;
}

}  // namespace memonger
