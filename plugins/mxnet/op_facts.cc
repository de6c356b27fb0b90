#include "mxnet/op_facts.h"

#include <mxnet/op_attr_types.h>
#include <nnvm/op_attr_types.h>

#include <cctype>
#include <cstdlib>
#include <numeric>
#include <set>

#include "mxnet/layouts.h"
#include "mxnet/loops.h"

namespace memonger {

using nnvm::Node;
using nnvm::Op;

std::string Attribute(const Node& node, const char* key) {
  auto found = node.attrs.dict.find(key);
  return found == node.attrs.dict.end() ? std::string() : found->second;
}

bool Truthy(const std::string& text) {
  std::string lower = text;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower == "true" || lower == "1";
}

bool IsOfPlan(const std::string& key) { return key.compare(0, 11, "__memonger_") == 0; }

bool UpdatesAverages(const Node& node) {
  static const std::set<std::string> names = {"BatchNorm", "memonger_inplace_batch_norm",
                                              "memonger_batch_norm_relu",
                                              "memonger_bn_relu_convolution"};
  return !node.is_variable() && names.count(node.op()->name) != 0;
}

namespace {

bool AsksForRandomness(const std::vector<mxnet::ResourceRequest>& requests) {
  for (const auto& request : requests)
    if (request.type != mxnet::ResourceRequest::kTempSpace) return true;
  return false;
}

bool DrawsRandomNumbers(const Node& node) {
  const std::string& kind = node.op()->name;
  if (kind == "Dropout") return true;
  // These draw only under certain attributes, whatever resources they ask for.
  if (kind == "RNN") return std::atof(Attribute(node, "p").c_str()) > 0;
  if (kind == "LeakyReLU") return Attribute(node, "act_type") == "rrelu";
  static const auto& requests = Op::GetAttr<mxnet::FResourceRequest>("FResourceRequest");
  return requests.contains(node.op()) && AsksForRandomness(requests[node.op()](node.attrs));
}

// Differentiable ops that tests/native/test_every_op.py cannot run: they work on GPUs only, on
// sparse arrays, on whole numbers beside others, or MXNet does not know their shapes.
bool IsUnproven(const Node& node) {
  static const std::set<std::string> names = {"_contrib_ModulatedDeformableConvolution",
                                              "_contrib_count_sketch",
                                              "_contrib_fft",
                                              "_contrib_ifft",
                                              "_contrib_hawkesll",
                                              "_npi_dstack",
                                              "_npi_hstack",
                                              "_sparse_retain",
                                              "_square_sum"};
  return names.count(node.op()->name) != 0;
}

}  // namespace

std::string RefusalReason(const Node& node) {
  if (node.is_variable()) return std::string();
  if (DrawsRandomNumbers(node)) return "it draws random numbers";
  static const auto& mutates = Op::GetAttr<nnvm::FMutateInputs>("FMutateInputs");
  if (mutates.contains(node.op()) && !mutates[node.op()](node.attrs).empty() &&
      !UpdatesAverages(node))
    return "it changes its inputs";
  if (IsUnproven(node)) return "nothing shows that it may run again";
  return std::string();
}

namespace {

// What one node tells by itself.
std::string KeepReason(const Node& node) {
  const std::string refusal = RefusalReason(node);
  if (!refusal.empty()) return refusal;
  // zeros(shape=(0, 20)) learns the rest of its shape from all its readers; a clone has few.
  if (node.inputs.empty()) return "it has no inputs";
  if (!node.attrs.subgraphs.empty()) return "it runs a graph of its own";
  if (MayReferToArrays(node)) return "its state may refer to the arrays of its first run";
  // A clone waits for gradients; MXNet looks for the forward op of such a node among what it
  // waits for.
  static const auto& backward = Op::GetAttr<nnvm::TIsBackward>("TIsBackward");
  if (backward.get(node.op(), false)) return "MXNet takes it for a gradient";
  // Copies between devices are put in after the gradients are made.
  if (node.op()->name == "_CrossDeviceCopy") return "it copies between devices";
  return std::string();
}

}  // namespace

std::unordered_map<const Node*, std::string> KeepReasons(const std::vector<const Node*>& forward) {
  std::unordered_map<const Node*, std::string> reasons;
  for (const Node* node : forward) {
    if (node->is_variable()) continue;
    const std::string reason = KeepReason(*node);
    if (!reason.empty()) reasons.emplace(node, reason);
    if (!MayReferToArrays(*node)) continue;
    for (const auto& e : node->inputs)
      if (!e.node->is_variable())
        reasons.emplace(e.node.get(), "the state of " + node->attrs.name + " may refer to it");
  }
  return reasons;
}

bool MayReferToArrays(const Node& node) {
  static const auto& cpu = Op::GetAttr<mxnet::FStatefulComputeEx>("FStatefulComputeEx<cpu>");
  static const auto& gpu = Op::GetAttr<mxnet::FStatefulComputeEx>("FStatefulComputeEx<gpu>");
  static const auto& exec_type = Op::GetAttr<mxnet::FExecType>("FExecType");
  static const auto& on_memory = Op::GetAttr<bool>(kComputesOnMemory);
  if (!MakesState(node)) return false;
  if (gpu.contains(node.op())) return true;
  if (cpu.contains(node.op()) && !on_memory.get(node.op(), false)) return true;
  // MXNet's older Python operators make arrays of what they are given.
  return exec_type.contains(node.op()) &&
         exec_type[node.op()](node.attrs) != mxnet::ExecType::kSync;
}

bool MakesState(const Node& node) {
  static const auto& create_state = Op::GetAttr<mxnet::FCreateOpState>("FCreateOpState");
  return !node.is_variable() && create_state.contains(node.op());
}

bool RunsByItself(const std::string& name) {
  static const std::set<std::string> names = {
      "Custom",           "_backward_Custom", "_NDArray",  "_backward__NDArray",
      "_CrossDeviceCopy", "_copyto",          "_CachedOp", "_backward_CachedOp"};
  return IsLoop(name) || names.count(name) != 0;
}

std::vector<uint32_t> OwnBuffers(const Node& node) {
  static const std::set<std::string> rearranged = {"Convolution", "Deconvolution", "FullyConnected",
                                                   "memonger_split_convolution"};
  if (node.is_variable()) return {};
  const std::string& name = node.op()->name;
  std::vector<uint32_t> found;
  if (RunsByItself(name)) {
    found.resize(node.inputs.size() + node.num_outputs());
    std::iota(found.begin(), found.end(), 0);
  }
  const uint32_t weight = name == "memonger_bn_relu_convolution" ? 5 : rearranged.count(name);
  if (weight && node.inputs.size() > weight) found.push_back(weight);
  return found;
}

bool AddsIntoFirst(const Node& node) {
  static const Op* grad_add = Op::Get("_grad_add");
  return node.op() == grad_add && node.inputs.size() == 2;
}

std::vector<uint32_t> UnwrittenOutputs(const Node& node) {
  if (node.is_variable() || node.op()->name != "Pooling" || node.num_outputs() < 2) return {};
  return {1};
}

bool NeedsReader(const Node& node, bool on_gpu) {
  static const std::set<std::string> names = {"Convolution",  "Deconvolution", "Crop",
                                              "hard_sigmoid", "LayerNorm",     "GroupNorm"};
  if (node.is_variable()) return false;
  return names.count(node.op()->name) != 0 || (on_gpu && node.op()->name == "BatchNorm");
}

std::vector<uint32_t> KeptOutputs(const Node& node) {
  static const std::set<std::string> names = {"BatchNorm", "LayerNorm", "InstanceNorm",
                                              "GroupNorm"};
  if (node.is_variable() || !names.count(node.op()->name)) return {};
  std::vector<uint32_t> kept;
  for (uint32_t i = 1; i < node.num_outputs(); ++i) kept.push_back(i);
  return kept;
}

}  // namespace memonger
