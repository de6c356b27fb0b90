/*
 * memonger_mask_relu: ReLU that keeps one bit an element.
 *
 * MXNet's relu keeps its output. Its gradient is NaN where the input was, and the places of NaN are
 * remembered beside the mask (nan_places.h). Activation under MKLDNN is another function there: it
 * makes NaN 0 and its gradient that of a closed gate. `stands_for` says which of the two is meant.
 */
#include "./beside_mkldnn.h"
#include "./gate.h"
#include "./nan_places.h"
#include "./params.h"
#include "./register.h"

namespace memonger {
namespace ops {
namespace {

template <class L>
struct Relu : Gate<L> {
  using V = typename L::V;
  using M = typename L::M;
  M Passes(V x) const { return L::NotAtMost(x, L::All(0)); }
  V Value(V x, M passes) const { return L::Pick(passes, x, L::All(0)); }
  M Noticed(V x) const { return L::Nan(x); }
  const WideGate* Wide() const {
    static const WideGate gate = {true, false, 0.0f};
    return &gate;
  }
};

template <class L>
struct MkldnnRelu : Relu<L> {
  using V = typename L::V;
  using M = typename L::M;
  M Passes(V x) const { return L::Above(x, L::All(0)); }
  M Noticed(V) const { return L::None(); }
  const WideGate* Wide() const {
    static const WideGate gate = {false, false, 0.0f};
    return &gate;
  }
};

void Forward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
             const Blobs& out) {
  if (NanBecomesZero(nnvm::get<MaskReluParam>(attrs.parsed).stands_for, in[0])) {
    GateForward<float, MkldnnRelu>(in[0], request, out);
    SetNanPlaces(out[1], nullptr);
    return;
  }
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       const bool nan = GateForward<T, Relu>(in[0], request, out);
                       // The input may be overwritten by the output, which has the same NaNs.
                       SetNanPlaces(out[1], nan ? FindNans<T>(in[0]) : nullptr);)
}

void Backward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
              const Blobs& out) {
  const auto nans = GetNanPlaces(in[1]);
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       GateBackward<T>(in[0], in[1], T(0), request[0], out[0]);
                       if (nans && request[0] != mxnet::kNullOp) WriteNans<T>(*nans, out[0]);)
}

}  // namespace

void RegisterMaskRelu() {
  RegisterGate("memonger_mask_relu",
               "Rectified linear unit max(x, 0) that keeps one bit an element for backward, "
               "where relu keeps its output.",
               Forward, Backward)
      .Parser(ParseParam<MaskReluParam>)
      .Arguments(FieldsOf<MaskReluParam>());
  Operator("_backward_memonger_mask_relu").Parser(ParseParam<MaskReluParam>);
}

}  // namespace ops
}  // namespace memonger
