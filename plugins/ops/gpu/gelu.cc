/* Gelu on a GPU: cuda/gelu.cu. */
#include "ops/frame/params.h"
#include "ops/gpu/operators.h"

namespace memonger {
namespace ops {
namespace {

gpu::Kernel forward("gelu.cu", "gelu_forward");
gpu::Kernel backward("gelu.cu", "gelu_backward");

}  // namespace

void GpuGeluForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                    const Requests& request, const Blobs& out) {
  if (request[0] == mxnet::kNullOp) return;
  if (request[0] == mxnet::kAddTo) Refuse(attrs, kGeluCannotBeAdded);
  gpu::LaunchElements(context, &forward, in[0].type_flag_, in[0], out[0], out[1], in[0].Size());
}

void GpuGeluBackward(const NodeAttrs&, const OpContext& context, const Blobs& in,
                     const Requests& request, const Blobs& out) {
  if (request[0] == mxnet::kNullOp) return;
  const int64_t count = out[0].Size();
  gpu::Launch(context, &backward, in[0].type_flag_, gpu::Blocks(count, gpu::kElements), in[0].dptr_,
              in[1].dptr_, in[2].dptr_, out[0].dptr_, count, static_cast<int>(request[0]));
}

}  // namespace ops
}  // namespace memonger
