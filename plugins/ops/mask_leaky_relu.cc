/*
 * memonger_mask_leaky_relu: leaky ReLU that keeps the sign bit of each element.
 *
 * LeakyReLU(act_type='leaky') keeps its input and its output. The negative side is rounded through
 * float32 whatever the dtype, as MXNet does.
 */
#include "./beside_mkldnn.h"
#include "./gate.h"
#include "./params.h"
#include "./register.h"

namespace memonger {
namespace ops {

namespace {

// The product is made in float32 for every dtype, as in MXNet: visible in float64 only.
template <class L>
struct LeakyRelu : Gate<L> {
  using V = typename L::V;
  using M = typename L::M;
  float slope;
  WideGate wide;
  explicit LeakyRelu(float s) : slope(s), wide{false, true, s} {}
  const WideGate* Wide() const { return &wide; }
  M Passes(V x) const { return L::Above(x, L::All(0)); }
  V Value(V x, M passes) const { return L::Pick(passes, x, L::MulAsFloat(x, slope)); }
};

// MKLDNN's lets the gradient of NaN through.
template <class L>
struct MkldnnLeakyRelu : LeakyRelu<L> {
  explicit MkldnnLeakyRelu(float s) : LeakyRelu<L>(s) { this->wide.nan_passes = true; }
  typename L::M Passes(typename L::V x) const { return L::NotAtMost(x, L::All(0)); }
};

void Forward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
             const Blobs& out) {
  const float slope = nnvm::get<MaskLeakyReluParam>(attrs.parsed).slope;
  if (MkldnnActivates(in[0])) {
    GateForward<float, MkldnnLeakyRelu>(in[0], request, out, slope);
    return;
  }
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       (GateForward<T, LeakyRelu>(in[0], request, out, static_cast<float>(T(slope))));)
}

void Backward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
              const Blobs& out) {
  const float slope = nnvm::get<MaskLeakyReluParam>(attrs.parsed).slope;
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       GateBackward<T>(in[0], in[1], T(slope), request[0], out[0]);)
}

}  // namespace

void RegisterMaskLeakyRelu() {
  RegisterGate("memonger_mask_leaky_relu",
               "Leaky rectified linear unit that keeps one bit an element for backward, where "
               "LeakyReLU keeps its input and its output.",
               Forward, Backward)
      .Parser(ParseParam<MaskLeakyReluParam>)
      .Arguments(FieldsOf<MaskLeakyReluParam>());
  Operator("_backward_memonger_mask_leaky_relu")
      .Parser(ParseParam<MaskLeakyReluParam>);
}

}  // namespace ops
}  // namespace memonger
