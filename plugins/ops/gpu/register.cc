#include "ops/register.h"

#include "ops/frame/operator.h"
#include "ops/gpu/operators.h"

namespace memonger {
namespace ops {
namespace {

struct GpuOperator {
  const char* name;  // its gradient is _backward_<name>
  mxnet::FCompute forward, backward;
};

void Register(const char* attribute, int priority) {
  const GpuOperator operators[] = {
      {"memonger_mask_relu", GpuReluForward, GpuReluBackward},
      {"memonger_mask_leaky_relu", GpuLeakyReluForward, GpuLeakyReluBackward},
      {"memonger_mask_clip", GpuClipForward, GpuClipBackward},
      {"memonger_mask_dropout", GpuDropoutForward, GpuDropoutBackward},
      {"memonger_max_pool", GpuMaxPoolForward, GpuMaxPoolBackward},
      {"memonger_batch_norm_relu", GpuBatchNormReluForward, GpuBatchNormReluBackward},
      {"memonger_bn_relu_convolution", GpuBnReluConvolutionForward, GpuBnReluConvolutionBackward},
      {"memonger_gelu", GpuGeluForward, GpuGeluBackward},
  };
  for (const GpuOperator& op : operators) {
    Operator(op.name).ComputeAs(attribute, op.forward, priority);
    Operator(std::string("_backward_") + op.name).ComputeAs(attribute, op.backward, priority);
  }
}

}  // namespace

void RegisterGpu() { Register("FCompute<gpu>", 10); }

void RegisterGpuAsCpu() {
  static bool done = false;
  if (!done) Register("FCompute<cpu>", 11);
  done = true;
}

}  // namespace ops
}  // namespace memonger
