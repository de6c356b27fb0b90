#include "./batch_norm.h"

namespace memonger {
namespace ops {

bool BatchNormShape(const NodeAttrs& attrs, int axis, ShapeVector* in, ShapeVector* out) {
  TShape& data = (*in)[0];
  if (!mxnet::shape_is_known(data)) return false;
  const TShape vector = Flat(data[ChannelAxis(attrs.name, data, axis)]);
  static const char* const kNames[] = {"data", "gamma", "beta", "moving_mean", "moving_var"};
  for (int i = 1; i < 5; ++i) {
    CHECK(!mxnet::shape_is_known((*in)[i]) || (*in)[i] == vector)
        << "Error in operator " << attrs.name << ": Shape inconsistent, Provided = " << (*in)[i]
        << ", inferred shape=" << vector << " for " << kNames[i];
    (*in)[i] = vector;
  }
  (*out)[0] = data;
  (*out)[1] = (*out)[2] = vector;
  return true;
}

bool BatchNormType(const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
  if (!SameRealType(attrs, in, out)) return false;
  const int vector = (*in)[0] == mshadow::kFloat16 ? mshadow::kFloat32 : (*in)[0];
  static const char* const kNames[] = {"data", "gamma", "beta", "moving_mean", "moving_var"};
  for (int i = 1; i < 5; ++i) {
    CHECK((*in)[i] == -1 || (*in)[i] == vector)
        << "Error in operator " << attrs.name << ": This layer requires uniform type. Expected '"
        << TypeName(vector) << "' v.s. given '" << TypeName((*in)[i]) << "' at '" << kNames[i]
        << "'";
    (*in)[i] = vector;
  }
  (*out)[1] = (*out)[2] = vector;
  return true;
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
