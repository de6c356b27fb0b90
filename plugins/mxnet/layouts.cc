#include "mxnet/layouts.h"

#include <malloc.h>
#include <mxnet/base.h>
#include <mxnet/graph_attr_types.h>
#include <mxnet/ndarray.h>
#include <mxnet/op_attr_types.h>
#include <mxnet/resource.h>
#include <nnvm/op.h>
#include <nnvm/op_attr_types.h>

#include <cstring>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "mxnet/op_facts.h"
#include "ops/delegates/delegate.h"
#include "ops/frame/mkldnn.h"

namespace memonger {

using mxnet::DispatchMode;
using mxnet::NDArray;
using mxnet::OpContext;
using mxnet::OpReqType;
using mxnet::Resource;
using mxnet::TBlob;
using nnvm::NodeAttrs;
using nnvm::Op;

using Arrays = std::vector<NDArray>;
using Requests = std::vector<OpReqType>;

namespace {

const int kPriority = 100;  // above MXNet's own registrations

// The array's own memory, its values in the default layout.
TBlob Settled(const NDArray& array) {
  if (array.IsMKLDNNData()) {
    const NDArray copy = array.Reorder2Default();
    const_cast<NDArray&>(array).InvalidateMKLDNNData();
    const TBlob from = copy.data(), to = array.data();
    std::memcpy(to.dptr_, from.dptr_, from.Size() * mshadow::mshadow_sizeof(from.type_flag_));
  }
  return array.data();
}

// Memory for copies that all ops of an executor share: the part of the temporary space in which
// MKLDNN reorders. Null where the op has none, or may use it itself.
const Resource* SharedSpace(const OpContext& context, bool op_uses_it) {
  if (op_uses_it) return nullptr;
  for (const Resource& resource : context.requested)
    if (resource.req.type == mxnet::ResourceRequest::kTempSpace) return &resource;
  return nullptr;
}

// Blobs of arrays in any layout; copies of what is read live as long as this does.
struct Blobs {
  std::vector<TBlob> in, out;
  Requests request;

  Blobs(const Arrays& in_arrays, const std::vector<uint32_t>& changed, const Requests& requests,
        const Arrays& out_arrays, const Resource* space)
      : request(requests) {
    for (const uint32_t i : changed) Settled(in_arrays[i]);
    Copy(in_arrays, space);
    for (const NDArray& copy : copies_) in.push_back(copy.data());
    for (size_t i = 0; i < out_arrays.size(); ++i) {
      const NDArray& array = out_arrays[i];
      if (request[i] == mxnet::kAddTo) {
        Settled(array);
      } else if (array.IsMKLDNNData()) {  // written in place: the input is a copy now
        const_cast<NDArray&>(array).InvalidateMKLDNNData();
        request[i] = mxnet::kWriteTo;
      }
      out.push_back(array.data());
    }
  }

 private:
  Arrays copies_;  // the array itself where it is in the default layout

  void Copy(const Arrays& arrays, const Resource* space) {
    int64_t bytes = 0;
    const auto moves = [](const NDArray& array) { return array.IsMKLDNNData() && !array.IsView(); };
    for (const NDArray& array : arrays)
      if (moves(array)) bytes += Aligned(array);
    char* next =
        space && bytes ? static_cast<char*>(space->get_host_space_internal(bytes)) : nullptr;
    for (const NDArray& array : arrays) {
      if (!next || !moves(array)) {
        copies_.push_back(array.Reorder2Default());
        continue;
      }
      copies_.push_back(ops::DefaultLayoutAt(array, next));
      next += Aligned(array);
    }
  }

  static int64_t Aligned(const NDArray& array) {
    const int64_t line = 64;
    const int64_t bytes = static_cast<int64_t>(array.shape().Size()) *
                          static_cast<int64_t>(mshadow::mshadow_sizeof(array.dtype()));
    return (bytes + line - 1) / line * line;
  }
};

bool AreDense(const Arrays& arrays) {
  for (const NDArray& array : arrays)
    if (array.storage_type() != mxnet::kDefaultStorage) return false;
  return true;
}

Arrays Reordered(const Arrays& arrays) {
  Arrays result;
  for (const NDArray& array : arrays)
    result.push_back(array.storage_type() == mxnet::kDefaultStorage ? array.Reorder2Default()
                                                                    : array);
  return result;
}

// What MXNet itself runs on dense arrays.
DispatchMode ModeOf(const NodeAttrs& attrs, size_t inputs, size_t outputs) {
  static const auto& infer = Op::GetAttr<mxnet::FInferStorageType>("FInferStorageType");
  DispatchMode mode = DispatchMode::kUndefined;
  if (!infer.contains(attrs.op)) return DispatchMode::kFCompute;
  std::vector<int> in(inputs, mxnet::kDefaultStorage), out(outputs, mxnet::kDefaultStorage);
  infer[attrs.op](attrs, mshadow::cpu::kDevMask, &mode, &in, &out);
  return mode;
}

template <class Compute>
void Set(Op* op, const char* key, const Compute& compute) {
  op->set_attr<Compute>(key, compute, kPriority);
  if (!Op::GetAttr<bool>("TIsMKLDNN").get(op, false))
    op->set_attr<bool>("TIsMKLDNN", true, kPriority);
}

// Whether the op's own code on blobs uses the temporary space of the host, in which MKLDNN
// reorders.
bool UsesHostSpace(const std::string& name) {
  static const auto* names = new std::unordered_set<std::string>{"RNN",
                                                                 "_backward_RNN",
                                                                 "SoftmaxOutput",
                                                                 "_backward_SoftmaxOutput",
                                                                 "Softmax",
                                                                 "SpatialTransformer",
                                                                 "_backward_SpatialTransformer"};
  return names->count(name) != 0;
}

void RegisterStateless(Op* op, const mxnet::FCompute& compute) {
  static const auto& on_arrays = Op::GetAttr<mxnet::FComputeEx>("FComputeEx<cpu>");
  static const auto& changes = Op::GetAttr<nnvm::FMutateInputs>("FMutateInputs");
  mxnet::FComputeEx before;
  nnvm::FMutateInputs changed;
  if (on_arrays.contains(op)) before = on_arrays[op];
  if (changes.contains(op)) changed = changes[op];
  const bool reads_layouts = Op::GetAttr<bool>("TIsMKLDNN").get(op, false);
  const bool uses_space = UsesHostSpace(op->name);
  Set<mxnet::FComputeEx>(
      op, "FComputeEx<cpu>",
      [=](const NodeAttrs& attrs, const OpContext& context, const Arrays& in,
          const Requests& request, const Arrays& out) {
        if (before && !(AreDense(in) && AreDense(out) &&
                        ModeOf(attrs, in.size(), out.size()) == DispatchMode::kFCompute)) {
          before(attrs, context, reads_layouts ? in : Reordered(in), request, out);
          return;
        }
        const Blobs blobs(in, changed ? changed(attrs) : std::vector<uint32_t>(), request, out,
                          SharedSpace(context, uses_space));
        compute(attrs, context, blobs.in, blobs.request, blobs.out);
      });
}

void RegisterStateful(Op* op, const mxnet::FStatefulCompute& compute) {
  static const auto& on_arrays = Op::GetAttr<mxnet::FStatefulComputeEx>("FStatefulComputeEx<cpu>");
  static const auto& changes = Op::GetAttr<nnvm::FMutateInputs>("FMutateInputs");
  if (on_arrays.contains(op) || changes.contains(op)) return;
  const bool uses_space = UsesHostSpace(op->name);
  op->set_attr<bool>(kComputesOnMemory, true);
  Set<mxnet::FStatefulComputeEx>(op, "FStatefulComputeEx<cpu>",
                                 [=](const mxnet::OpStatePtr& state, const OpContext& context,
                                     const Arrays& in, const Requests& request, const Arrays& out) {
                                   const Blobs blobs(in, {}, request, out,
                                                     SharedSpace(context, uses_space));
                                   compute(state, context, blobs.in, blobs.request, blobs.out);
                                 });
}

// Freed arrays go back to the system at once. By itself malloc learns from MKLDNN's temporary
// arrays of the first step to keep tens of megabytes in each thread.
void GiveBackFreedArrays() {
  static const bool done = mallopt(M_MMAP_THRESHOLD, 1 << 20) != 0;
  (void)done;
}

bool IsPlanned(const nnvm::IndexedGraph& index) {
  for (uint32_t id = 0; id < index.num_nodes(); ++id) {
    const nnvm::Node& node = *index[id].source;
    if (node.is_variable()) continue;
    if (node.op()->name.find("memonger_") != std::string::npos) return true;
    for (const auto& attribute : node.attrs.dict)
      if (IsOfPlan(attribute.first)) return true;
  }
  return false;
}

}  // namespace

void RegisterArrayImplementations() {
  static const auto& stateless = Op::GetAttr<mxnet::FCompute>("FCompute<cpu>");
  static const auto& stateful = Op::GetAttr<mxnet::FStatefulCompute>("FStatefulCompute<cpu>");
  if (!ops::MkldnnEnabled()) return;
  for (const std::string& name : dmlc::Registry<Op>::ListAllNames()) {
    Op* op = const_cast<Op*>(Op::Get(name));
    if (op->name != name) continue;  // another name of it
    if (stateless.contains(op)) RegisterStateless(op, stateless[op]);
    if (stateful.contains(op)) RegisterStateful(op, stateful[op]);
  }
}

void AvoidCopies(nnvm::Graph* graph) {
  static const auto& stateless = Op::GetAttr<mxnet::FComputeEx>("FComputeEx<cpu>");
  static const auto& stateful = Op::GetAttr<mxnet::FStatefulComputeEx>("FStatefulComputeEx<cpu>");
  const nnvm::IndexedGraph& index = graph->indexed_graph();
  if (!ops::MkldnnEnabled() || !graph->HasAttr("dispatch_mode") || !graph->HasAttr("dev_mask") ||
      !IsPlanned(index))
    return;
  GiveBackFreedArrays();
  auto modes = graph->GetAttr<mxnet::DispatchModeVector>("dispatch_mode");
  const auto& devices = graph->GetAttr<std::vector<int>>("dev_mask");
  for (uint32_t id = 0; id < index.num_nodes(); ++id) {
    const Op* op = index[id].source->op();
    if (op && modes[id] == DispatchMode::kFCompute && devices[id] == mshadow::cpu::kDevMask &&
        (stateless.contains(op) || stateful.contains(op)))
      modes[id] = DispatchMode::kFComputeEx;
  }
  graph->attrs["dispatch_mode"] = std::make_shared<nnvm::any>(std::move(modes));
}

}  // namespace memonger
