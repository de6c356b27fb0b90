/*
 * memonger_mask_relu: ReLU that keeps one bit an element.
 *
 * MXNet's relu keeps its output. NaN passes, and so does the gradient of its element, which MXNet
 * makes NaN. Activation under MKLDNN is another function there: it makes NaN 0 and its gradient
 * that of a negative input. `stands_for` says which of the two is meant.
 */
#include "ops/elementwise/bit_mask_activation.h"
#include "ops/frame/mkldnn.h"
#include "ops/frame/params.h"
#include "ops/register.h"

namespace memonger {
namespace ops {
namespace {

template <class T>
struct Relu {
  bool Passes(T x) const { return !(x <= T(0.0f)); }
  T Value(T x, bool passes) const { return passes ? x : T(0.0f); }
};

struct MkldnnRelu {
  bool Passes(float x) const { return x > 0; }
  float Value(float x, bool passes) const { return passes ? x : 0; }
};

void Forward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
             const Blobs& out) {
  if (NanBecomesZero(nnvm::get<MaskReluParam>(attrs.parsed).stands_for, in[0])) {
    return BitMaskForward<float>(MkldnnRelu(), in[0], request, out);
  }
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       BitMaskForward<T>(Relu<T>(), in[0], request, out);)
}

void Backward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
              const Blobs& out) {
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       BitMaskBackward<T>(in[0], in[1], T(0.0f), request[0], out[0]);)
}

}  // namespace

void RegisterMaskRelu() {
  RegisterBitMaskActivation(
      "memonger_mask_relu",
      "Rectified linear unit max(x, 0) that keeps one bit an element for backward, "
      "where relu keeps its output.",
      Forward, Backward)
      .Parser(ParseParam<MaskReluParam>)
      .Arguments(FieldsOf<MaskReluParam>());
  Operator("_backward_memonger_mask_relu").Parser(ParseParam<MaskReluParam>);
}

}  // namespace ops
}  // namespace memonger
