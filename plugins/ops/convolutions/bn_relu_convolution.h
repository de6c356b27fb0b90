/* What the CPU and the GPU code of memonger_bn_relu_convolution share. */
#ifndef MEMONGER_OPS_CONVOLUTIONS_BN_RELU_CONVOLUTION_H_
#define MEMONGER_OPS_CONVOLUTIONS_BN_RELU_CONVOLUTION_H_

#include "ops/convolutions/convolution.h"
#include "ops/norms/batch_norm.h"

namespace memonger {
namespace ops {

struct Fused {
  BatchNormParam norm;
  Convolver convolver;
  uint32_t Parameters() const { return convolver.has_bias ? 2 : 1; }  // of the convolution
};

inline const Fused& FusedOf(const NodeAttrs& attrs) { return nnvm::get<Fused>(attrs.parsed); }

constexpr int kNormInputs = 5;

// From [data gamma beta moving_mean moving_var | weight bias] to that of the convolution.
template <class Values>
Values ConvolutionInputs(const Values& in) {
  Values result{in[0]};
  result.insert(result.end(), in.begin() + kNormInputs, in.end());
  return result;
}

// MKLDNN changes the layout of weights in inference, behind the back of other readers.
inline OpContext AsTraining(const OpContext& context) {
  OpContext result = context;
  result.is_train = true;
  return result;
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_CONVOLUTIONS_BN_RELU_CONVOLUTION_H_
