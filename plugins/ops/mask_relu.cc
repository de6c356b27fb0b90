/*
 * memonger_mask_relu: ReLU that keeps one bit an element.
 *
 * MXNet's relu keeps its output. NaN passes forward, as in MXNet; its gradient is the incoming
 * one, where MXNet writes NaN (one bit cannot tell a NaN from a positive number).
 */
#include "./gate.h"
#include "./register.h"

namespace memonger {
namespace ops {
namespace {

template <class L>
struct Relu {
  using V = typename L::V;
  using M = typename L::M;
  M Passes(V x) const { return L::NotAtMost(x, L::All(0)); }
  V Value(V x, M passes) const { return L::Pick(passes, x, L::All(0)); }
};

void Forward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
             const Blobs& out) {
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       (GateForward<T, Relu>(in[0], request, out));)
}

void Backward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
              const Blobs& out) {
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       GateBackward<T>(in[0], in[1], T(0), request[0], out[0]);)
}

}  // namespace

void RegisterMaskRelu() {
  RegisterGate("memonger_mask_relu",
               "Rectified linear unit max(x, 0) that keeps one bit an element for backward, "
               "where relu keeps its output.",
               Forward, Backward);
}

}  // namespace ops
}  // namespace memonger
