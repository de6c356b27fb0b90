/*
 * memonger_mask_clip: clip (relu6, hardtanh) that keeps one bit an element: inside the bounds or not.
 *
 * MXNet's clip keeps its input. Where an element was clipped the gradient is zero, selected and
 * not multiplied, as in MXNet; NaN counts as inside.
 */
#include "./gate.h"
#include "./params.h"
#include "./register.h"

namespace memonger {
namespace ops {

DMLC_REGISTER_PARAMETER(MaskClipParam);

namespace {

template <class L>
struct Clip {
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
  if (request == mxnet::kNullOp) return;
  const T* g = gradient.dptr<T>();
  const uint8_t* bits = mask.dptr<uint8_t>();
  T* d = result.dptr<T>();
  const int64_t count = result.Size(), whole = count / 8;
  const bool add = request == mxnet::kAddTo;
  using L = Lanes<T>;
#pragma omp parallel for if (count >= kParallelFrom)
  for (int64_t b = 0; b < whole; ++b) {
    for (int lane = 0; lane < 8; lane += L::kWidth) {
      const auto value = L::Pick(L::Expand(bits[b] >> lane), L::Load(g + 8 * b + lane), L::All(0));
      T* to = d + 8 * b + lane;
      L::Put(to, add ? L::Add(L::Load(to), value) : value);
    }
  }
  for (int64_t i = whole * 8; i < count; ++i) Store(d + i, request, Bit(bits, i) ? g[i] : T(0));
}

void Forward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
             const Blobs& out) {
  const auto& param = nnvm::get<MaskClipParam>(attrs.parsed);
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       (GateForward<T, Clip>(in[0], request, out, param.a_min, param.a_max));)
}

void Backward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
              const Blobs& out) {
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       ClipBackward<T>(in[0], in[1], request[0], out[0]);)
}

}  // namespace

void RegisterMaskClip() {
  RegisterGate("memonger_mask_clip",
               "Limits values to [a_min, a_max] and keeps one bit an element for backward, where "
               "clip keeps its input. relu6 is a_min=0, a_max=6.",
               Forward, Backward)
      .set_attr_parser(ParseParam<MaskClipParam>)
      .add_arguments(MaskClipParam::__FIELDS__());
  MEMONGER_OP("_backward_memonger_mask_clip").set_attr_parser(ParseParam<MaskClipParam>);
}

}  // namespace ops
}  // namespace memonger
