/* Gelu on a GPU: cuda/gelu.cu. */
#include "ops/gpu/operators.h"
#include "ops/frame/params.h"

namespace memonger {
namespace ops {

void GpuGeluForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                    const Requests& request, const Blobs& out) {
  if (request[0] == mxnet::kNullOp) return;
  if (request[0] == mxnet::kAddTo) Refuse(attrs, kGeluCannotBeAdded);
  const int64_t count = in[0].Size();
  gpu::Launch(context, {"gelu.cu", "gelu_forward"}, in[0].type_flag_, gpu::Threads(count),
              in[0].dptr_, out[0].dptr_, out[1].dptr_, count);
}

void GpuGeluBackward(const NodeAttrs&, const OpContext& context, const Blobs& in,
                     const Requests& request, const Blobs& out) {
  if (request[0] == mxnet::kNullOp) return;
  const int64_t count = out[0].Size();
  gpu::Launch(context, {"gelu.cu", "gelu_backward"}, in[0].type_flag_, gpu::Threads(count),
              in[0].dptr_, in[1].dptr_, in[2].dptr_, out[0].dptr_, count,
              static_cast<int>(request[0]));
}

}  // namespace ops
}  // namespace memonger
