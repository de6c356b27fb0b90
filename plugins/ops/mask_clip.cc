/*
 * memonger_mask_clip: clip (relu6, hardtanh) that keeps one bit an element: inside the bounds or not.
 *
 * MXNet's clip keeps its input. Where an element was clipped the gradient is zero, selected and
 * not multiplied, as in MXNet; NaN counts as inside. MXNet's clip writes its gradient even when
 * asked to add it; this one adds, unless `adds` says that it takes the place of MXNet's.
 */
#include "./gate.h"
#include "./params.h"
#include "./register.h"

namespace memonger {
namespace ops {

namespace {

template <class L>
struct Clip : Gate<L> {
  using V = typename L::V;
  using M = typename L::M;
  V low, high;
  Clip(float a, float b) : low(L::All(a)), high(L::All(b)) {}
  M Passes(V x) const { return L::Not(L::Either(L::Above(x, high), L::Above(low, x))); }
  V Value(V x, M passes) const {
    return L::Pick(passes, x, L::Pick(L::Above(x, high), high, low));
  }
};

template <class T>
void ClipBackward(const TBlob& gradient, const TBlob& mask, OpReqType request,
                  const TBlob& result) {
  using L = Lanes<T>;
  ForEachGate<T>(gradient, mask, request, result,
                 [](const T* g, const uint8_t* bits, int64_t length, bool add, T* d) {
                   for (int64_t i = 0; i < length; i += L::kWidth) {
                     const auto open = L::Expand(static_cast<unsigned>(bits[i / 8]) >> (i & 7));
                     const auto value = L::Pick(open, L::Load(g + i), L::All(0));
                     L::Put(d + i, add ? L::Add(L::Load(d + i), value) : value);
                   }
                 },
                 [](T g, bool open) { return open ? g : T(0); });
}

void Forward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
             const Blobs& out) {
  const auto& param = nnvm::get<MaskClipParam>(attrs.parsed);
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       (GateForward<T, Clip>(in[0], request, out,
                                             static_cast<float>(T(param.a_min)),
                                             static_cast<float>(T(param.a_max))));)
}

void Backward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
              const Blobs& out) {
  const auto asked = nnvm::get<MaskClipParam>(attrs.parsed).GradientRequest(request[0]);
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       ClipBackward<T>(in[0], in[1], asked, out[0]);)
}

}  // namespace

void RegisterMaskClip() {
  RegisterGate("memonger_mask_clip",
               "Limits values to [a_min, a_max] and keeps one bit an element for backward, where "
               "clip keeps its input. relu6 is a_min=0, a_max=6.",
               Forward, Backward)
      .Parser(ParseParam<MaskClipParam>)
      .Arguments(FieldsOf<MaskClipParam>());
  Operator("_backward_memonger_mask_clip").Parser(ParseParam<MaskClipParam>);
}

}  // namespace ops
}  // namespace memonger
