/*
 * The gradient of a convolution as MXNet's native CPU code makes it, for the weight or for the
 * data.
 *
 * MXNet's own code always makes both. Here each is made alone: one sample at a time, unrolled to a
 * matrix, multiplied by MXNet's linalg operators in MXNet's order, so that all bits are the same.
 */
#ifndef MEMONGER_OPS_CONVOLUTIONS_NATIVE_GRADIENT_H_
#define MEMONGER_OPS_CONVOLUTIONS_NATIVE_GRADIENT_H_

#include <string>

#include "ops/delegates/delegate.h"
#include "ops/frame/params.h"

namespace memonger {
namespace ops {

class NativeGradient {
 public:
  NativeGradient() = default;
  // `attributes`: those of Convolution.
  NativeGradient(const std::string& name, const Dictionary& attributes);

  // float32 and float64, channels first: MXNet's native convolution has no others.
  void OfWeight(const OpContext& context, const TBlob& gradient, const TBlob& data,
                OpReqType request, const TBlob& out) const;
  void OfData(const OpContext& context, const TBlob& gradient, const TBlob& weight,
              OpReqType request, const TBlob& out) const;

 private:
  ConvolutionWindow window_;
  Delegate multiply_transposed_a_, multiply_transposed_b_, add_transposed_b_;
};

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_CONVOLUTIONS_NATIVE_GRADIENT_H_
