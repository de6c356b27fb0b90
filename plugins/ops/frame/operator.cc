#include "ops/frame/operator.h"

namespace memonger {
namespace ops {

Operator::Operator(const std::string& name)
    : op_(&::dmlc::Registry<::nnvm::Op>::Get()->__REGISTER_OR_GET__(name)) {}

Operator& Operator::Text(const std::string& text) {
  op_->describe(text);
  return *this;
}

Operator& Operator::Inputs(uint32_t count) {
  op_->set_num_inputs(count);
  return *this;
}

Operator& Operator::Inputs(Count count) {
  op_->set_num_inputs(count);
  return *this;
}

Operator& Operator::Outputs(uint32_t count) {
  op_->set_num_outputs(count);
  return *this;
}

Operator& Operator::Outputs(Count count) {
  op_->set_num_outputs(count);
  return *this;
}

Operator& Operator::VisibleOutputs(uint32_t count) {
  op_->set_attr<nnvm::FNumVisibleOutputs>("FNumVisibleOutputs",
                                          [count](const NodeAttrs&) { return count; });
  return *this;
}

Operator& Operator::InputNames(const Names& names) {
  return InputNames([names](const NodeAttrs&) { return names; });
}

Operator& Operator::InputNames(std::function<Names(const NodeAttrs&)> names) {
  op_->set_attr<nnvm::FListInputNames>("FListInputNames", names);
  return *this;
}

Operator& Operator::OutputNames(const Names& names) {
  op_->set_attr<nnvm::FListOutputNames>("FListOutputNames",
                                        [names](const NodeAttrs&) { return names; });
  return *this;
}

Operator& Operator::Parser(std::function<void(NodeAttrs*)> parser) {
  op_->set_attr_parser([parser](NodeAttrs* attrs) { ParseNamed(parser, attrs); });
  return *this;
}

Operator& Operator::InferShape(mxnet::FInferShape infer) {
  op_->set_attr<mxnet::FInferShape>("FInferShape", Naming(infer));
  return *this;
}

Operator& Operator::InferType(nnvm::FInferType infer) {
  op_->set_attr<nnvm::FInferType>("FInferType", Naming(infer));
  return *this;
}

Operator& Operator::InferStorage(mxnet::FInferStorageType infer) {
  op_->set_attr<mxnet::FInferStorageType>("FInferStorageType", infer);
  return *this;
}

Operator& Operator::InplaceFirst() {
  op_->set_attr<nnvm::FInplaceOption>("FInplaceOption",
                                      [](const NodeAttrs&) { return Pairs{{0, 0}}; });
  return *this;
}

Operator& Operator::Changes(const std::vector<uint32_t>& inputs) {
  changed_ = inputs;
  op_->set_attr<nnvm::FMutateInputs>("FMutateInputs",
                                     [inputs](const NodeAttrs&) { return inputs; });
  return *this;
}

Operator& Operator::TempSpace() {
  return Resources(
      [](const NodeAttrs&) { return std::vector<ResourceRequest>{ResourceRequest::kTempSpace}; });
}

Operator& Operator::Resources(mxnet::FResourceRequest request) {
  op_->set_attr<mxnet::FResourceRequest>("FResourceRequest", request);
  return *this;
}

Operator& Operator::OutsideCudaGraphs() {
  // The type that MXNet's header has where it is compiled for CUDA.
  using IsCompatible = std::function<bool(const NodeAttrs&, const bool)>;
  op_->set_attr<IsCompatible>("FIsCUDAGraphsCompatible",
                              [](const NodeAttrs&, const bool) { return false; });
  return *this;
}

Operator& Operator::Compute(mxnet::FCompute compute) {
  return ComputeAs("FCompute<cpu>", compute, 10);
}

Operator& Operator::ComputeOnGpu(mxnet::FCompute compute) {
  return ComputeAs("FCompute<gpu>", compute, 10);
}

Operator& Operator::ComputeAs(const std::string& key, mxnet::FCompute compute, int priority) {
  op_->set_attr<mxnet::FCompute>(key, Naming(compute), priority);
  return *this;
}

Operator& Operator::ComputeArrays(mxnet::FComputeEx compute) {
  op_->set_attr<mxnet::FComputeEx>("FComputeEx<cpu>", Naming(compute));
  return *this;
}

Operator& Operator::UsesMkldnn() {
  op_->set_attr<bool>("TIsMKLDNN", true);
  return *this;
}

Operator& Operator::IsBackward() {
  op_->set_attr<nnvm::TIsBackward>("TIsBackward", true);
  return *this;
}

Operator& Operator::Gradient(const std::vector<Kept>& kept, uint32_t count) {
  const std::string backward = "_backward_" + op_->name;
  const std::vector<uint32_t> changed = changed_;
  return Gradient([kept, count, backward, changed](const ObjectPtr& node,
                                                   const std::vector<NodeEntry>& gradients) {
    std::vector<NodeEntry> inputs{gradients[0]};
    for (const Kept& value : kept) {
      inputs.push_back(value.is_output ? NodeEntry{node, value.index, 0}
                                       : node->inputs[value.index]);
    }
    return GradientsOf(BackwardNode(node, backward, std::move(inputs)), count, changed);
  });
}

Operator& Operator::Gradient(nnvm::FGradient gradient) {
  op_->set_attr<nnvm::FGradient>("FGradient", gradient);
  return *this;
}

Operator& Operator::OnCompose(nnvm::FSetInputVarAttrOnCompose set) {
  op_->set_attr<nnvm::FSetInputVarAttrOnCompose>("FSetInputVarAttrOnCompose", set);
  return *this;
}

Operator& Operator::InputsByNumber(const std::string& attribute) {
  op_->set_attr<std::string>("key_var_num_args", attribute);
  return *this;
}

Operator& Operator::Argument(const std::string& name, const std::string& text) {
  op_->add_argument(name, "NDArray-or-Symbol", text);
  return *this;
}

Operator& Operator::Arguments(const std::vector<dmlc::ParamFieldInfo>& fields) {
  op_->add_arguments(fields);
  return *this;
}

// ------------------------------------------------------------------ gradient nodes
ObjectPtr BackwardNode(const ObjectPtr& forward, const std::string& op,
                       std::vector<NodeEntry> inputs) {
  ObjectPtr node = nnvm::Node::Create();
  node->attrs = forward->attrs;
  node->attrs.op = nnvm::Op::Get(op);
  node->attrs.name = forward->attrs.name + "_backward";
  node->control_deps.emplace_back(forward);
  node->inputs = std::move(inputs);
  return node;
}

std::vector<NodeEntry> GradientsOf(const ObjectPtr& backward, uint32_t count,
                                   const std::vector<uint32_t>& changed) {
  std::vector<NodeEntry> gradients;
  for (uint32_t i = 0; i < count; ++i) gradients.emplace_back(backward, i, 0);
  for (uint32_t place : changed) {
    ObjectPtr none = nnvm::Node::Create();
    none->attrs.op = nnvm::Op::Get("_NoGradient");
    none->attrs.name = "NoGradient";
    gradients.insert(gradients.begin() + place, NodeEntry{none, 0, 0});
  }
  return gradients;
}

// ------------------------------------------------------------------ shapes and types
static bool Merge(TShape* one, TShape* other) {
  if (!mxnet::ndim_is_known(*one)) *one = *other;
  if (!mxnet::ndim_is_known(*other)) *other = *one;
  if (one->ndim() != other->ndim()) return false;
  for (int i = 0; i < one->ndim(); ++i) {
    if (!mxnet::dim_size_is_known(*one, i)) (*one)[i] = (*other)[i];
    if (!mxnet::dim_size_is_known(*other, i)) (*other)[i] = (*one)[i];
    if ((*one)[i] != (*other)[i]) return false;
  }
  return true;
}

void MergeShapes(const NodeAttrs& attrs, TShape* inferred, TShape* provided,
                 const std::string& of) {
  if (Merge(inferred, provided)) return;
  Refuse(attrs, Words() << "Shape inconsistent, Provided = " << *provided
                        << ", inferred shape=" << *inferred << of);
}

bool SameShape(const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
  MergeShapes(attrs, &(*in)[0], &(*out)[0]);
  return mxnet::shape_is_known((*in)[0]);
}

bool SameRealType(const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
  const int type = (*in)[0] != -1 ? (*in)[0] : (*out)[0];
  if (type == -1) return false;
  if (!IsReal(type)) {
    Refuse(attrs, Words() << "dtype " << TypeName(type)
                          << " is not supported; use float16, float32 or float64");
  }
  if ((*out)[0] != -1 && (*out)[0] != type) {
    Refuse(attrs, Words() << "Type inconsistent, Provided = " << TypeName((*out)[0])
                          << ", inferred type = " << TypeName(type));
  }
  (*in)[0] = (*out)[0] = type;
  return true;
}

bool MaskedType(const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
  if (!SameRealType(attrs, in, out)) return false;
  (*out)[1] = mshadow::kUint8;
  return true;
}

void InferParameter(const NodeAttrs& attrs, const char* name, TShape expected, TShape* shape) {
  MergeShapes(attrs, &expected, shape, std::string(" for ") + name);
}

void InferParameter(const NodeAttrs& attrs, const char* name, int expected, int* type) {
  if (*type != -1 && *type != expected) {
    Refuse(attrs, Words() << "Type inconsistent, Provided = " << TypeName(*type)
                          << ", inferred type = " << TypeName(expected) << " for " << name);
  }
  *type = expected;
}

}  // namespace ops
}  // namespace memonger
