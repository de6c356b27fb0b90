/*
 * memonger_mask_clip: clip (relu6, hardtanh) that keeps one bit an element: inside the bounds or
 * not.
 *
 * MXNet's clip keeps its input. Where an element was clipped the gradient is zero, selected and
 * not multiplied, as in MXNet; NaN counts as inside. MXNet's clip writes its gradient even when
 * asked to add it; this one adds, unless `adds` says that it takes the place of MXNet's.
 */
#include "ops/elementwise/bit_mask_activation.h"
#include "ops/frame/params.h"
#include "ops/register.h"

namespace memonger {
namespace ops {

namespace {

template <class T>
struct Clip {
  T low, high;
  bool Passes(T x) const { return !(x > high) && !(low > x); }
  T Value(T x, bool passes) const { return passes ? x : x > high ? high : low; }
};

template <class T>
void ClipBackward(const TBlob& gradient, const TBlob& mask, OpReqType request,
                  const TBlob& result) {
  ForEachBit(gradient.dptr<T>(), mask.dptr<uint8_t>(), result.Size(), request, result.dptr<T>(),
             [](T value, int bit) { return bit ? value : T(0.0f); });
}

void Forward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
             const Blobs& out) {
  const auto& param = nnvm::get<MaskClipParam>(attrs.parsed);
  MEMONGER_REAL_SWITCH(
      in[0].type_flag_, attrs.name, T,
      BitMaskForward<T>(Clip<T>{T(param.a_min), T(param.a_max)}, in[0], request, out);)
}

void Backward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
              const Blobs& out) {
  const auto asked = nnvm::get<MaskClipParam>(attrs.parsed).GradientRequest(request[0]);
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       ClipBackward<T>(in[0], in[1], asked, out[0]);)
}

}  // namespace

void RegisterMaskClip() {
  RegisterBitMaskActivation(
      "memonger_mask_clip",
      "Limits values to [a_min, a_max] and keeps one bit an element for backward, where "
      "clip keeps its input. relu6 is a_min=0, a_max=6.",
      Forward, Backward)
      .Parser(ParseParam<MaskClipParam>)
      .Arguments(FieldsOf<MaskClipParam>());
  Operator("_backward_memonger_mask_clip").Parser(ParseParam<MaskClipParam>);
}

}  // namespace ops
}  // namespace memonger
