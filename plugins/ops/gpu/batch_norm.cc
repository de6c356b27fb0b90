/* Operators with BatchNorm on a GPU: cuda/batch_norm.cu. */
#include "ops/norms/batch_norm.h"
#include "ops/convolutions/bn_relu_convolution.h"
#include "ops/gpu/operators.h"
#include "ops/gpu/spare.h"
#include "ops/frame/params.h"

namespace memonger {
namespace ops {
namespace {

struct Place {  // both as in the kernel
  int64_t outer, channels, inner;
};

struct Norm {
  double eps, slope;
  float momentum;
  int fix_gamma, batch, activation;
  int averages;  // who moves the averages, and how
};

constexpr int kRelu = 3;  // after identity, leaky and ELU
// As MXNet's operator on that device: its own code in backward, cuDNN in forward.
enum Averages { kBiasedInBackward, kUnbiasedInForward };

Place PlaceOf(const TShape& shape, int axis) {
  const Channels channels(shape, axis);
  return Place{channels.outer, channels.count, channels.inner};
}

// One block a channel; threads are a power of two and about as many as it has elements.
gpu::Grid BlockPerChannel(const Place& place) {
  int threads = 32;
  while (threads < 512 && threads < place.outer * place.inner) threads *= 2;
  return gpu::Grid{place.channels, threads, threads * static_cast<int>(sizeof(double))};
}

template <class Param>
Norm NormOf(const Param& param, const OpContext& context, int activation, double slope) {
  const bool cudnn = context.run_ctx.ctx.dev_mask() == mshadow::gpu::kDevMask && !param.cudnn_off;
  return Norm{param.eps, slope, param.momentum, param.fix_gamma,
              context.is_train && !param.use_global_stats, activation,
              cudnn ? kUnbiasedInForward : kBiasedInBackward};
}

GpuSpare SpareOf(const NodeAttrs& attrs, const OpContext& context, const TBlob& spare,
                 int64_t channels) {
  const auto& param = nnvm::get<InplaceBatchNormParam>(attrs.parsed);
  if (param.fix_gamma) return GpuSpare{};
  return MakeGpuSpare(attrs, context, spare, Spares(param, channels), channels);
}

void LaunchForward(const OpContext& context, const Blobs& in, const Requests& request,
                   const Blobs& out, const Place& place, const Norm& norm, const GpuSpare& spare) {
  if (place.outer * place.inner == 0) return;
  gpu::Launch(context, {"batch_norm.cu", "batch_norm_forward"}, in[0].type_flag_,
              BlockPerChannel(place), in[0].dptr_, in[1].dptr_, in[2].dptr_, in[3].dptr_,
              in[4].dptr_, out[0].dptr_, out[1].dptr_, out[2].dptr_, place, norm, spare,
              static_cast<int>(request[0]));
}

struct Moving {
  void *mean, *var;
};

// in: gradient, kept tensor, gamma, beta, mean, invstd, ...
void LaunchBackward(const OpContext& context, const Blobs& in, Moving moving,
                    const Requests& request, const Blobs& out, const Place& place,
                    const Norm& norm, const GpuSpare& spare) {
  if (place.outer * place.inner == 0) return;
  gpu::Launch(context, {"batch_norm.cu", "batch_norm_backward"}, in[1].type_flag_,
              BlockPerChannel(place), in[0].dptr_, in[1].dptr_, in[2].dptr_, in[3].dptr_,
              in[4].dptr_, in[5].dptr_, moving.mean, moving.var, out[0].dptr_, out[1].dptr_,
              out[2].dptr_, place, norm, spare, static_cast<int>(request[0]),
              static_cast<int>(request[1]), static_cast<int>(request[2]));
}

// BatchNorm and ReLU of data gamma beta, from statistics that are there.
void NormaliseRelu(const OpContext& context, const BatchNormParam& param, const Blobs& in,
                   const TBlob& mean, const TBlob& invstd, const TBlob& out) {
  const int64_t count = out.Size();
  gpu::Launch(context, {"batch_norm.cu", "normalise_relu"}, in[0].type_flag_, gpu::Threads(count),
              in[0].dptr_, in[1].dptr_, in[2].dptr_, mean.dptr_, invstd.dptr_, out.dptr_, count,
              PlaceOf(out.shape_, param.axis), static_cast<int>(param.fix_gamma));
}

// Makes the input of the convolution in `buffer`, of samples of the data.
Convolver::Maker<TBlob> MakerOf(const OpContext& context, const BatchNormParam& param,
                                const Blobs& in, const TBlob& mean, const TBlob& invstd,
                                const TBlob& buffer) {
  return [&context, &param, in, mean, invstd, buffer](int64_t begin, int64_t end) {
    const TBlob result = Samples(buffer, 0, end - begin);
    NormaliseRelu(context, param, {Samples(in[0], begin, end), in[1], in[2]}, mean, invstd, result);
    return result;
  };
}

}  // namespace

void GpuBatchNormReluForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                             const Requests& request, const Blobs& out) {
  const auto& param = nnvm::get<BatchNormParam>(attrs.parsed);
  LaunchForward(context, in, request, out, PlaceOf(in[0].shape_, param.axis),
                NormOf(param, context, kRelu, 0), GpuSpare{});
}

void GpuBatchNormReluBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                              const Requests& request, const Blobs& out) {
  const auto& param = nnvm::get<BatchNormParam>(attrs.parsed);
  LaunchBackward(context, in, {in[6].dptr_, in[7].dptr_}, request, out,
                 PlaceOf(in[1].shape_, param.axis), NormOf(param, context, kRelu, 0), GpuSpare{});
}

void GpuInplaceBatchNormForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                                const Requests& request, const Blobs& out) {
  const auto& param = nnvm::get<InplaceBatchNormParam>(attrs.parsed);
  const Place place = PlaceOf(in[0].shape_, param.axis);
  LaunchForward(context, in, request, out, place,
                NormOf(param, context, param.act_type, param.slope),
                SpareOf(attrs, context, out[3], place.channels));
}

// in: gradient output gamma beta mean invstd spare moving_mean moving_var
void GpuInplaceBatchNormBackward(const NodeAttrs& attrs, const OpContext& context,
                                 const Blobs& in, const Requests& request, const Blobs& out) {
  const auto& param = nnvm::get<InplaceBatchNormParam>(attrs.parsed);
  const Place place = PlaceOf(in[1].shape_, param.axis);
  LaunchBackward(context, in, {in[7].dptr_, in[8].dptr_}, request, out, place,
                 NormOf(param, context, param.act_type, param.slope),
                 SpareOf(attrs, context, in[6], place.channels));
}

void GpuBnReluConvolutionForward(const NodeAttrs& attrs, const OpContext& context,
                                 const Blobs& in, const Requests& request, const Blobs& out) {
  const Fused& fused = FusedOf(attrs);
  LaunchForward(context, in, {mxnet::kNullOp}, {TBlob(), out[1], out[2]},
                PlaceOf(in[0].shape_, fused.norm.axis), NormOf(fused.norm, context, kRelu, 0),
                GpuSpare{});
  if (request[0] == mxnet::kNullOp) return;
  fused.convolver.Forward(AsTraining(context), ConvolutionInputs(in), request[0], out[0],
                          MakerOf(context, fused.norm, in, out[1], out[2], out[3]));
}

// in: gradient data gamma beta mean invstd moving_mean moving_var weight [bias]
void GpuBnReluConvolutionBackward(const NodeAttrs& attrs, const OpContext& context,
                                  const Blobs& in, const Requests& request, const Blobs& out) {
  const Fused& fused = FusedOf(attrs);
  // The gradient of ReLU's output goes where that of the data goes, if that may be written.
  mxnet::NDArray temporary;
  TBlob gradient = out[0];
  if (request[0] != mxnet::kWriteTo && request[0] != mxnet::kWriteInplace) {
    temporary = mxnet::NDArray(in[1].shape_, context.run_ctx.ctx, false, in[1].type_flag_);
    gradient = temporary.data();
  }
  Blobs conv_in{in[0], in[1]}, conv_out{gradient};
  Requests conv_request{mxnet::kWriteTo};
  for (uint32_t i = 0; i < fused.Parameters(); ++i) {
    conv_in.push_back(in[8 + i]);
    conv_out.push_back(out[3 + i]);
    conv_request.push_back(request[3 + i]);
  }
  const Blobs norm_in{in[1], in[2], in[3]};
  fused.convolver.Backward(AsTraining(context), conv_in, conv_request, conv_out,
                           MakerOf(context, fused.norm, norm_in, in[4], in[5], out.back()));
  Blobs blobs = in;
  blobs[0] = gradient;
  LaunchBackward(context, blobs, {in[6].dptr_, in[7].dptr_}, request, out,
                 PlaceOf(in[1].shape_, fused.norm.axis), NormOf(fused.norm, context, kRelu, 0),
                 GpuSpare{});
  if (!temporary.is_none()) gpu::Wait(context);  // before its memory goes to somebody else
}

}  // namespace ops
}  // namespace memonger
