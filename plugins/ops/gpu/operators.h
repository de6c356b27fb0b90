/* The GPU implementations; register.cc says which operator has which. */
#ifndef MEMONGER_OPS_GPU_OPERATORS_H_
#define MEMONGER_OPS_GPU_OPERATORS_H_

#include "ops/gpu/launch.h"

namespace memonger {
namespace ops {

#define MEMONGER_GPU_COMPUTE(NAME)                                             \
  void NAME(const NodeAttrs& attrs, const OpContext& context, const Blobs& in, \
            const Requests& request, const Blobs& out)

MEMONGER_GPU_COMPUTE(GpuReluForward);
MEMONGER_GPU_COMPUTE(GpuReluBackward);
MEMONGER_GPU_COMPUTE(GpuLeakyReluForward);
MEMONGER_GPU_COMPUTE(GpuLeakyReluBackward);
MEMONGER_GPU_COMPUTE(GpuClipForward);
MEMONGER_GPU_COMPUTE(GpuClipBackward);
MEMONGER_GPU_COMPUTE(GpuDropoutForward);
MEMONGER_GPU_COMPUTE(GpuDropoutBackward);
MEMONGER_GPU_COMPUTE(GpuMaxPoolForward);
MEMONGER_GPU_COMPUTE(GpuMaxPoolBackward);
MEMONGER_GPU_COMPUTE(GpuBatchNormReluForward);
MEMONGER_GPU_COMPUTE(GpuBatchNormReluBackward);
MEMONGER_GPU_COMPUTE(GpuBnReluConvolutionForward);
MEMONGER_GPU_COMPUTE(GpuBnReluConvolutionBackward);
MEMONGER_GPU_COMPUTE(GpuGeluForward);
MEMONGER_GPU_COMPUTE(GpuGeluBackward);

#undef MEMONGER_GPU_COMPUTE

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_GPU_OPERATORS_H_
