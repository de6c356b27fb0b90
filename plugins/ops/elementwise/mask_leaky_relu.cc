/*
 * memonger_mask_leaky_relu: leaky ReLU that keeps the sign bit of each element.
 *
 * LeakyReLU(act_type='leaky') keeps its input and its output. The negative side is rounded through
 * float32 whatever the dtype, as MXNet does.
 */
#include "ops/elementwise/bit_mask_activation.h"
#include "ops/frame/mkldnn.h"
#include "ops/frame/params.h"
#include "ops/register.h"

namespace memonger {
namespace ops {

namespace {

// The product is made in float32 for every dtype, as in MXNet: visible in float64 only.
template <class T>
struct LeakyRelu {
  float slope;
  bool Passes(T x) const { return x > T(0.0f); }
  T Value(T x, bool passes) const { return passes ? x : T(static_cast<float>(x) * slope); }
};

// MKLDNN's lets the gradient of NaN through.
struct MkldnnLeakyRelu : LeakyRelu<float> {
  explicit MkldnnLeakyRelu(float s) : LeakyRelu<float>{s} {}
  bool Passes(float x) const { return !(x <= 0); }
};

void Forward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
             const Blobs& out) {
  const float slope = nnvm::get<MaskLeakyReluParam>(attrs.parsed).slope;
  if (MkldnnActivates(in[0])) {
    return BitMaskForward<float>(MkldnnLeakyRelu(slope), in[0], request, out);
  }
  MEMONGER_REAL_SWITCH(
      in[0].type_flag_, attrs.name, T,
      BitMaskForward<T>(LeakyRelu<T>{static_cast<float>(T(slope))}, in[0], request, out);)
}

void Backward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
              const Blobs& out) {
  const float slope = nnvm::get<MaskLeakyReluParam>(attrs.parsed).slope;
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       BitMaskBackward<T>(in[0], in[1], T(slope), request[0], out[0]);)
}

}  // namespace

void RegisterMaskLeakyRelu() {
  RegisterBitMaskActivation(
      "memonger_mask_leaky_relu",
      "Leaky rectified linear unit that keeps one bit an element for backward, where "
      "LeakyReLU keeps its input and its output.",
      Forward, Backward)
      .Parser(ParseParam<MaskLeakyReluParam>)
      .Arguments(FieldsOf<MaskLeakyReluParam>());
  Operator("_backward_memonger_mask_leaky_relu").Parser(ParseParam<MaskLeakyReluParam>);
}

}  // namespace ops
}  // namespace memonger
