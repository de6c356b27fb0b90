#include "ops/norms/batch_norm.h"

namespace memonger {
namespace ops {

static const char* const kInputs[] = {"data", "gamma", "beta", "moving_mean", "moving_var"};

bool BatchNormShape(const NodeAttrs& attrs, int axis, ShapeVector* in, ShapeVector* out) {
  const bool known = SameShape(attrs, in, out);
  const TShape& data = (*in)[0];
  if (!mxnet::ndim_is_known(data)) return false;
  const TShape vector = Flat(data[ChannelAxis(attrs, data, axis)]);
  for (int i = 1; i < 5; ++i) InferParameter(attrs, kInputs[i], vector, &(*in)[i]);
  (*out)[1] = (*out)[2] = vector;
  return known;
}

bool BatchNormType(const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
  if (!SameRealType(attrs, in, out)) return false;
  const int vector = (*in)[0] == mshadow::kFloat16 ? mshadow::kFloat32 : (*in)[0];
  for (int i = 1; i < 5; ++i) InferParameter(attrs, kInputs[i], vector, &(*in)[i]);
  (*out)[1] = (*out)[2] = vector;
  return true;
}

std::shared_ptr<const StockNorm> StockNormOf(const std::string& name,
                                             const Dictionary& attributes) {
  Dictionary own;
  for (const char* key :
       {"eps", "momentum", "fix_gamma", "use_global_stats", "axis", "cudnn_off"}) {
    const auto found = attributes.find(key);
    if (found != attributes.end()) own.insert(*found);
  }
  StockNorm stock;
  stock.forward = Delegate("BatchNorm", name, own);
  stock.backward = stock.forward.As("_backward_BatchNorm");
  own["momentum"] = "1";
  stock.again = Delegate("BatchNorm", name, own);
  return std::make_shared<const StockNorm>(stock);
}

namespace {

void InitAverages(const NodeAttrs&, ObjectPtr variable, const int index) {
  if (variable->attrs.dict.count("__init__")) return;
  if (index == 3) variable->attrs.dict["__init__"] = "[\"zero\", {}]";
  if (index == 4) variable->attrs.dict["__init__"] = "[\"one\", {}]";
}

}  // namespace

Operator RegisterNorm(const char* name, const char* text) {
  return Operator(name)
      .Text(text)
      .Inputs(5)
      .VisibleOutputs(1)
      .Changes(MovingAverages())
      .OnCompose(InitAverages)
      .Argument("data", "Input.")
      .Argument("gamma", "Scale.")
      .Argument("beta", "Shift.")
      .Argument("moving_mean", "Running mean.")
      .Argument("moving_var", "Running variance.");
}

}  // namespace ops
}  // namespace memonger
