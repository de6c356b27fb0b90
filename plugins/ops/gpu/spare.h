/* Channels with a gamma near zero (spare.h), as kernels are told of them. */
#ifndef MEMONGER_OPS_GPU_SPARE_H_
#define MEMONGER_OPS_GPU_SPARE_H_

#include <string>

#include "ops/gpu/launch.h"
#include "ops/norms/spare.h"

namespace memonger {
namespace ops {

struct GpuSpare {  // as struct Spare of the kernels; all zero: no channel needs room
  void* data;
  int channels, searched;
  double smallest;
  int* error;
  int error_number;
};

// A GPU tells of channels without room after the fact: the error comes with one of the next
// operators, and the gradients of such channels are NaN meanwhile.
inline GpuSpare MakeGpuSpare(const NodeAttrs& attrs, const OpContext& context, const TBlob& spare,
                             int64_t room, int64_t channels) {
  if (!(context.is_train || context.need_grad)) return GpuSpare{};
  const int number = gpu::ErrorNumber(
      attrs.op->name + "(" + attrs.name + "): gamma is near zero in more than " +
      std::to_string(room) + " of " + std::to_string(channels) +
      " channels, so the input cannot be rebuilt from the output; plan without this variant, or "
      "set spare_channels");
  return GpuSpare{spare.dptr_, static_cast<int>(room), 1, SmallGamma(spare.type_flag_),
                  gpu::ErrorWord(context), number};
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_GPU_SPARE_H_
