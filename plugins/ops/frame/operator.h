/*
 * Entering operators into MXNet's registry.
 *
 * Registration happens in Register*(), called after the library has been checked, and not by static
 * initialisers while the library is being loaded. All that MXNet's templates make of it is compiled
 * once, in operator.cc: with MXNet's own macros every operator's file would hold a copy.
 */
#ifndef MEMONGER_OPS_FRAME_OPERATOR_H_
#define MEMONGER_OPS_FRAME_OPERATOR_H_

#include <functional>
#include <string>
#include <vector>

#include "ops/frame/common.h"
#include "ops/frame/refuse.h"

namespace memonger {
namespace ops {

// What an operator's gradient reads besides the gradient of its output.
struct Kept {
  bool is_output;
  uint32_t index;
};
inline Kept Input(uint32_t index) { return Kept{false, index}; }
inline Kept Output(uint32_t index) { return Kept{true, index}; }

// One operator in MXNet's registry; each call sets one of its attributes.
class Operator {
 public:
  using Count = std::function<uint32_t(const NodeAttrs&)>;

  explicit Operator(const std::string& name);

  Operator& Text(const std::string& text);
  Operator& Inputs(uint32_t count);
  Operator& Inputs(Count count);
  Operator& Outputs(uint32_t count);
  Operator& Outputs(Count count);
  Operator& VisibleOutputs(uint32_t count);
  Operator& InputNames(const Names& names);
  Operator& InputNames(std::function<Names(const NodeAttrs&)> names);
  Operator& OutputNames(const Names& names);
  Operator& Parser(std::function<void(NodeAttrs*)> parser);
  Operator& InferShape(mxnet::FInferShape infer);
  Operator& InferType(nnvm::FInferType infer);
  Operator& InferStorage(mxnet::FInferStorageType infer);

  // The first output may be the memory of the first input.
  Operator& InplaceFirst();
  // Inputs that are also written; they have no gradient, asking for one is an error.
  Operator& Changes(const std::vector<uint32_t>& inputs);
  Operator& TempSpace();
  Operator& Resources(mxnet::FResourceRequest request);
  // A CUDA graph, which MXNet can record and play back, must not have it.
  Operator& OutsideCudaGraphs();

  Operator& Compute(mxnet::FCompute compute);
  Operator& ComputeOnGpu(mxnet::FCompute compute);
  Operator& ComputeArrays(mxnet::FComputeEx compute);
  // `key` is MXNet's name of the attribute; of two the higher priority stays.
  Operator& ComputeAs(const std::string& key, mxnet::FCompute compute, int priority);
  Operator& UsesMkldnn();

  Operator& IsBackward();
  // The gradient is _backward_<name>, which reads the output's gradient and what is kept. Its first
  // `count` outputs are the gradients of the inputs that do not change.
  Operator& Gradient(const std::vector<Kept>& kept, uint32_t count);
  Operator& Gradient(nnvm::FGradient gradient);

  Operator& OnCompose(nnvm::FSetInputVarAttrOnCompose set);
  // The number of inputs is this attribute; MXNet's frontend fills it in.
  Operator& InputsByNumber(const std::string& attribute);

  // For documentation and generated functions.
  Operator& Argument(const std::string& name, const std::string& text);
  Operator& Arguments(const std::vector<dmlc::ParamFieldInfo>& fields);

 private:
  nnvm::Op* op_;
  std::vector<uint32_t> changed_;
};

// ------------------------------------------------------------------ gradient nodes
ObjectPtr BackwardNode(const ObjectPtr& forward, const std::string& op,
                       std::vector<NodeEntry> inputs);

// The first `count` outputs of a backward node; for the inputs at the places `changed`, a node that
// stands for no gradient, as with MXNet's BatchNorm.
std::vector<NodeEntry> GradientsOf(const ObjectPtr& backward, uint32_t count,
                                   const std::vector<uint32_t>& changed = {});

// ------------------------------------------------------------------ shapes and types
// Fills in what either shape does not know from the other; refuses shapes that contradict each
// other, in a message that ends with `of`.
void MergeShapes(const NodeAttrs& attrs, TShape* inferred, TShape* provided,
                 const std::string& of = "");

// Data and output have one shape; what is known of each fills the other. Whether all is known.
bool SameShape(const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out);

// Data and output have one real dtype; the first known one fills the other.
bool SameRealType(const NodeAttrs& attrs, TypeVector* in, TypeVector* out);

// The same, and a second output of bytes.
bool MaskedType(const NodeAttrs& attrs, TypeVector* in, TypeVector* out);

// A parameter must have what follows from the data.
void InferParameter(const NodeAttrs& attrs, const char* name, TShape expected, TShape* shape);
void InferParameter(const NodeAttrs& attrs, const char* name, int expected, int* type);

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_FRAME_OPERATOR_H_
