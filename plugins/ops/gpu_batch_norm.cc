/* Both BatchNorms on a GPU: cuda/batch_norm.cu. */
#include "./batch_norm.h"
#include "./gpu_operators.h"
#include "./params.h"

namespace memonger {
namespace ops {
namespace {

struct Place {  // these three as in the kernel
  int64_t outer, channels, inner;
};

struct Norm {
  double eps, slope;
  float momentum;
  int fix_gamma, batch, activation;
};

struct Spare {
  void* data;
  int channels, searched;
  double smallest;
  int* error;
  int error_number;
};

constexpr int kRelu = 3;  // after identity, leaky and ELU

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
  return Norm{param.eps, slope, param.momentum, param.fix_gamma,
              context.is_train && !param.use_global_stats, activation};
}

Spare NoSpare() { return Spare{nullptr, 0, 0, 0.0, nullptr, 0}; }

// A GPU tells of channels without room after the fact: the error comes with one of the next
// operators, and the gradients of such channels are NaN meanwhile.
Spare SpareOf(const NodeAttrs& attrs, const OpContext& context, const TBlob& spare,
              int64_t channels) {
  const auto& param = nnvm::get<InplaceBatchNormParam>(attrs.parsed);
  if (param.fix_gamma || !(context.is_train || context.need_grad)) return NoSpare();
  const int64_t room = Spares(param, channels);
  const int number = gpu::ErrorNumber(
      "Error in operator " + attrs.name + ": gamma is near zero in more than " +
      std::to_string(room) + " of " + std::to_string(channels) +
      " channels, so the input cannot be rebuilt from the output; plan without this variant, or "
      "set spare_channels");
  return Spare{spare.dptr_, static_cast<int>(room), 1, kSmallGamma, gpu::ErrorWord(context),
               number};
}

void LaunchForward(const OpContext& context, const Blobs& in, const Requests& request,
                   const Blobs& out, const Place& place, const Norm& norm, const Spare& spare) {
  if (place.outer * place.inner == 0) return;
  gpu::Launch(context, {"batch_norm.cu", "batch_norm_forward"}, in[0].type_flag_,
              BlockPerChannel(place), in[0].dptr_, in[1].dptr_, in[2].dptr_, in[3].dptr_,
              in[4].dptr_, out[0].dptr_, out[1].dptr_, out[2].dptr_, place, norm, spare,
              static_cast<int>(request[0]));
}

struct Averages {
  void *mean, *var;
};

// in: gradient, kept tensor, gamma, beta, mean, invstd, ...
void LaunchBackward(const OpContext& context, const Blobs& in, Averages averages,
                    const Requests& request, const Blobs& out, const Place& place,
                    const Norm& norm, const Spare& spare) {
  if (place.outer * place.inner == 0) return;
  gpu::Launch(context, {"batch_norm.cu", "batch_norm_backward"}, in[1].type_flag_,
              BlockPerChannel(place), in[0].dptr_, in[1].dptr_, in[2].dptr_, in[3].dptr_,
              in[4].dptr_, in[5].dptr_, averages.mean, averages.var, out[0].dptr_, out[1].dptr_,
              out[2].dptr_, place, norm, spare, static_cast<int>(request[0]),
              static_cast<int>(request[1]), static_cast<int>(request[2]));
}

}  // namespace

void GpuBatchNormReluForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                             const Requests& request, const Blobs& out) {
  const auto& param = nnvm::get<BatchNormParam>(attrs.parsed);
  LaunchForward(context, in, request, out, PlaceOf(in[0].shape_, param.axis),
                NormOf(param, context, kRelu, 0), NoSpare());
}

void GpuBatchNormReluBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                              const Requests& request, const Blobs& out) {
  const auto& param = nnvm::get<BatchNormParam>(attrs.parsed);
  LaunchBackward(context, in, {in[6].dptr_, in[7].dptr_}, request, out,
                 PlaceOf(in[1].shape_, param.axis), NormOf(param, context, kRelu, 0), NoSpare());
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

}  // namespace ops
}  // namespace memonger
