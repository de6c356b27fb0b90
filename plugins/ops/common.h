/*
 * Shared by all operators: registration, parameters, dtypes, writing, gradient nodes.
 *
 * Operators are registered with MXNet's own headers and macros; the only difference is that
 * registration happens in Register*(), called after the library has been checked, and not by
 * static initialisers while the library is being loaded.
 */
#ifndef MEMONGER_OPS_COMMON_H_
#define MEMONGER_OPS_COMMON_H_

#include <dmlc/parameter.h>
#include <mxnet/base.h>
#include <mxnet/op_attr_types.h>
#include <nnvm/node.h>
#include <nnvm/op.h>
#include <nnvm/op_attr_types.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#define MEMONGER_OP(NAME) ::dmlc::Registry<::nnvm::Op>::Get()->__REGISTER_OR_GET__(NAME)

// Runs the block with T = float, double or half_t.
#define MEMONGER_REAL_SWITCH(TYPE, OP_NAME, T, ...)                                        \
  switch (TYPE) {                                                                          \
    case mshadow::kFloat32: { using T = float; __VA_ARGS__ } break;                        \
    case mshadow::kFloat64: { using T = double; __VA_ARGS__ } break;                       \
    case mshadow::kFloat16: { using T = mshadow::half::half_t; __VA_ARGS__ } break;        \
    default: LOG(FATAL) << (OP_NAME) << ": dtype " << memonger::ops::TypeName(TYPE)        \
                        << " is not supported; use float16, float32 or float64";           \
  }

// Defines NAME as the FCompute that runs FUNCTION<T> for the dtype T of an input.
#define MEMONGER_REAL_COMPUTE(NAME, FUNCTION, INPUT)                                       \
  void NAME(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,             \
            const Requests& request, const Blobs& out) {                                   \
    MEMONGER_REAL_SWITCH(in[INPUT].type_flag_, attrs.name, T,                              \
                         FUNCTION<T>(attrs, context, in, request, out);)                   \
  }

namespace memonger {
namespace ops {

using mxnet::OpContext;
using mxnet::OpReqType;
using mxnet::ResourceRequest;
using mxnet::ShapeVector;
using mxnet::TBlob;
using mxnet::TShape;
using nnvm::NodeAttrs;
using nnvm::NodeEntry;
using nnvm::ObjectPtr;
using half_t = mshadow::half::half_t;

using TypeVector = std::vector<int>;
using Blobs = std::vector<TBlob>;
using Requests = std::vector<OpReqType>;
using Pairs = std::vector<std::pair<int, int>>;
using Names = std::vector<std::string>;

// Loops shorter than this run on one thread: starting a team costs about as much.
constexpr int64_t kParallelFrom = 16384;

// The type sums are made in, as MXNet does: float for half_t, else the type itself.
template <class T> struct Accumulator { using type = T; };
template <> struct Accumulator<half_t> { using type = float; };
template <class T> using Acc = typename Accumulator<T>::type;

inline const char* TypeName(int type) {
  static const char* const kNames[] = {"float32", "float64", "float16", "uint8", "int32",
                                       "int8", "int64", "bool", "int16", "uint16", "uint32",
                                       "uint64", "bfloat16"};
  return type >= 0 && type < 13 ? kNames[type] : "unknown";
}

inline bool IsReal(int type) {
  return type == mshadow::kFloat32 || type == mshadow::kFloat64 || type == mshadow::kFloat16;
}

template <class Param>
void ParseParam(NodeAttrs* attrs) {
  Param param;
  try {
    param.Init(attrs->dict, dmlc::parameter::kAllowHidden);
  } catch (const dmlc::ParamError& error) {
    std::string text = error.what();
    text += ", in operator " + attrs->op->name + "(name=\"" + attrs->name + "\"";
    for (const auto& item : attrs->dict) text += ", " + item.first + "=\"" + item.second + "\"";
    throw dmlc::ParamError(text + ")");
  }
  attrs->parsed = std::move(param);
}

// Writes v as the request says. `add` and `null` are loop invariants that the compiler hoists.
template <class T, class V>
inline void Store(T* target, OpReqType request, V value) {
  if (request == mxnet::kAddTo) {
    *target += static_cast<T>(value);
  } else if (request != mxnet::kNullOp) {
    *target = static_cast<T>(value);
  }
}

// ------------------------------------------------------------------ shapes and types
// Data and output have one shape; the first known one fills the other.
inline bool SameShape(const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
  TShape& data = (*in)[0];
  TShape& output = (*out)[0];
  if (!mxnet::shape_is_known(data) && mxnet::shape_is_known(output)) data = output;
  if (!mxnet::shape_is_known(data)) return false;
  CHECK(!mxnet::shape_is_known(output) || output == data)
      << "Error in operator " << attrs.name << ": Shape inconsistent, Provided = " << output
      << ", inferred shape=" << data;
  output = data;
  return true;
}

// Data and output have one real dtype; the first known one fills the other.
inline bool SameRealType(const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
  const int type = (*in)[0] != -1 ? (*in)[0] : (*out)[0];
  if (type == -1) return false;
  CHECK(IsReal(type)) << "Error in operator " << attrs.name << ": dtype " << TypeName(type)
                      << " is not supported; use float16, float32 or float64";
  CHECK((*out)[0] == -1 || (*out)[0] == type)
      << "Error in operator " << attrs.name << ": Type inconsistent, Provided = "
      << TypeName((*out)[0]) << ", inferred type = " << TypeName(type);
  (*in)[0] = (*out)[0] = type;
  return true;
}

inline TShape Flat(int64_t size) { return TShape(1, static_cast<nnvm::dim_t>(size)); }

// ------------------------------------------------------------------ registration helpers
template <int kCount>
uint32_t Constant(const NodeAttrs&) { return kCount; }

inline nnvm::FInplaceOption InplaceFirst() {
  return [](const NodeAttrs&) { return Pairs{{0, 0}}; };
}

inline std::function<Names(const NodeAttrs&)> NameList(Names names) {
  return [names](const NodeAttrs&) { return names; };
}

inline mxnet::FResourceRequest TempSpace() {
  return [](const NodeAttrs&) {
    return std::vector<ResourceRequest>{ResourceRequest::kTempSpace};
  };
}

// Scratch memory of the step (a CPU or a device pointer), asked for by TempSpace().
inline void* Scratch(const OpContext& context, int64_t bytes) {
  return context.requested[0].get_space_internal(std::max<int64_t>(bytes, 8));
}

inline ObjectPtr BackwardNode(const ObjectPtr& forward, const char* op,
                              std::vector<NodeEntry> inputs) {
  ObjectPtr node = nnvm::Node::Create();
  node->attrs = forward->attrs;
  node->attrs.op = nnvm::Op::Get(op);
  node->attrs.name = forward->attrs.name + "_backward";
  node->control_deps.emplace_back(forward);
  node->inputs = std::move(inputs);
  return node;
}

inline std::vector<NodeEntry> OutputsOf(const ObjectPtr& node, uint32_t count) {
  std::vector<NodeEntry> entries;
  for (uint32_t i = 0; i < count; ++i) entries.emplace_back(node, i, 0);
  return entries;
}

// For auxiliary states: asking for their gradient is an error, as with MXNet's BatchNorm.
inline NodeEntry NoGradient() {
  ObjectPtr node = nnvm::Node::Create();
  node->attrs.op = nnvm::Op::Get("_NoGradient");
  node->attrs.name = "NoGradient";
  return NodeEntry{node, 0, 0};
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_COMMON_H_
