/* ReLU, leaky ReLU and clip on a GPU: cuda/gate.cu. */
#include "ops/gpu/operators.h"
#include "ops/frame/params.h"

namespace memonger {
namespace ops {
namespace {

template <class... Scalars>
void Forward(const char* kernel, const OpContext& context, const Blobs& in,
             const Requests& request, const Blobs& out, Scalars... scalars) {
  const int64_t count = in[0].Size();
  gpu::Launch(context, {"gate.cu", kernel}, in[0].type_flag_, gpu::Threads(count), in[0].dptr_,
              out[0].dptr_, out[1].dptr_, count, static_cast<int>(request[0]), scalars...);
}

template <class... Scalars>
void Backward(const char* kernel, const OpContext& context, const Blobs& in,
              const Requests& request, const Blobs& out, Scalars... scalars) {
  if (request[0] == mxnet::kNullOp) return;
  const int64_t count = out[0].Size();
  gpu::Launch(context, {"gate.cu", kernel}, in[0].type_flag_, gpu::Threads(count), in[0].dptr_,
              in[1].dptr_, out[0].dptr_, count, static_cast<int>(request[0]), scalars...);
}

float Slope(const NodeAttrs& attrs, const Blobs& in) {
  return gpu::Rounded(in[0].type_flag_, nnvm::get<MaskLeakyReluParam>(attrs.parsed).slope);
}

}  // namespace

void GpuReluForward(const NodeAttrs&, const OpContext& context, const Blobs& in,
                    const Requests& request, const Blobs& out) {
  Forward("relu_forward", context, in, request, out);
}

void GpuReluBackward(const NodeAttrs&, const OpContext& context, const Blobs& in,
                     const Requests& request, const Blobs& out) {
  Backward("gate_backward", context, in, request, out, 0.0f);
}

void GpuLeakyReluForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                         const Requests& request, const Blobs& out) {
  Forward("leaky_relu_forward", context, in, request, out, Slope(attrs, in));
}

void GpuLeakyReluBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                          const Requests& request, const Blobs& out) {
  Backward("gate_backward", context, in, request, out, Slope(attrs, in));
}

void GpuClipForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                    const Requests& request, const Blobs& out) {
  const auto& param = nnvm::get<MaskClipParam>(attrs.parsed);
  const int type = in[0].type_flag_;
  Forward("clip_forward", context, in, request, out, gpu::Rounded(type, param.a_min),
          gpu::Rounded(type, param.a_max));
}

void GpuClipBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                     const Requests& request, const Blobs& out) {
  const auto& param = nnvm::get<MaskClipParam>(attrs.parsed);
  Backward("clip_backward", context, in, {param.GradientRequest(request[0])}, out);
}

}  // namespace ops
}  // namespace memonger
