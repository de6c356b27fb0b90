/* ReLU, leaky ReLU and clip on a GPU: cuda/activations.cu. */
#include "ops/frame/params.h"
#include "ops/gpu/operators.h"

namespace memonger {
namespace ops {
namespace {

gpu::Kernel relu_forward("activations.cu", "relu_forward");
gpu::Kernel leaky_relu_forward("activations.cu", "leaky_relu_forward");
gpu::Kernel clip_forward("activations.cu", "clip_forward");
gpu::Kernel leaky_relu_backward("activations.cu", "leaky_relu_backward");
gpu::Kernel clip_backward("activations.cu", "clip_backward");

template <class... Scalars>
void Forward(gpu::Kernel* kernel, const OpContext& context, const Blobs& in,
             const Requests& request, const Blobs& out, Scalars... scalars) {
  gpu::LaunchElements(context, kernel, in[0].type_flag_, in[0], out[0], out[1], in[0].Size(),
                      static_cast<int>(request[0]), scalars...);
}

template <class... Scalars>
void Backward(gpu::Kernel* kernel, const OpContext& context, const Blobs& in, OpReqType request,
              const Blobs& out, Scalars... scalars) {
  if (request == mxnet::kNullOp) return;
  gpu::LaunchElements(context, kernel, in[0].type_flag_, in[0], in[1], out[0], out[0].Size(),
                      static_cast<int>(request), scalars...);
}

float Slope(const NodeAttrs& attrs, const Blobs& in) {
  return gpu::Rounded(in[0].type_flag_, nnvm::get<MaskLeakyReluParam>(attrs.parsed).slope);
}

}  // namespace

void GpuReluForward(const NodeAttrs&, const OpContext& context, const Blobs& in,
                    const Requests& request, const Blobs& out) {
  Forward(&relu_forward, context, in, request, out);
}

void GpuReluBackward(const NodeAttrs&, const OpContext& context, const Blobs& in,
                     const Requests& request, const Blobs& out) {
  Backward(&leaky_relu_backward, context, in, request[0], out, 0.0f);
}

void GpuLeakyReluForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                         const Requests& request, const Blobs& out) {
  Forward(&leaky_relu_forward, context, in, request, out, Slope(attrs, in));
}

void GpuLeakyReluBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                          const Requests& request, const Blobs& out) {
  Backward(&leaky_relu_backward, context, in, request[0], out, Slope(attrs, in));
}

void GpuClipForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                    const Requests& request, const Blobs& out) {
  const auto& param = nnvm::get<MaskClipParam>(attrs.parsed);
  const int type = in[0].type_flag_;
  Forward(&clip_forward, context, in, request, out, gpu::Rounded(type, param.a_min),
          gpu::Rounded(type, param.a_max));
}

void GpuClipBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                     const Requests& request, const Blobs& out) {
  const auto& param = nnvm::get<MaskClipParam>(attrs.parsed);
  Backward(&clip_backward, context, in, param.GradientRequest(request[0]), out);
}

}  // namespace ops
}  // namespace memonger
