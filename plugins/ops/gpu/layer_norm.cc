/* LayerNorm on a GPU: cuda/layer_norm.cu. */
#include "ops/norms/channels.h"
#include "ops/gpu/operators.h"
#include "ops/gpu/spare.h"

namespace memonger {
namespace ops {
namespace {

struct Place {  // as in the kernel
  int64_t outer, channels, inner;
};

const LayerNormParam& ParamOf(const NodeAttrs& attrs) {
  return nnvm::get<LayerNormParam>(attrs.parsed);
}

Place PlaceOf(const NodeAttrs& attrs, const TShape& shape) {
  const Channels channels(shape, ChannelAxis(attrs, shape, ParamOf(attrs).axis));
  return Place{channels.outer, channels.count, channels.inner};
}

gpu::Grid BlockPerRow(const Place& place) {
  int threads = 32;
  while (threads < 512 && threads < place.channels) threads *= 2;
  return gpu::Grid{place.outer * place.inner, threads,
                   threads * static_cast<int>(sizeof(double))};
}

GpuSpare SpareOf(const NodeAttrs& attrs, const OpContext& context, const TBlob& spare,
                 int64_t channels) {
  return MakeGpuSpare(attrs, context, spare, SpareRoom(ParamOf(attrs).spare_channels, channels),
                      channels);
}

}  // namespace

void GpuLayerNormForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                         const Requests& request, const Blobs& out) {
  const Place place = PlaceOf(attrs, in[0].shape_);
  gpu::Launch(context, {"layer_norm.cu", "layer_norm_forward"}, in[0].type_flag_,
              BlockPerRow(place), in[0].dptr_, in[1].dptr_, in[2].dptr_, out[0].dptr_,
              out[1].dptr_, place, static_cast<double>(ParamOf(attrs).eps),
              SpareOf(attrs, context, out[2], place.channels), static_cast<int>(request[0]));
}

// in: gradient output gamma beta invstd spare
void GpuLayerNormBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                          const Requests& request, const Blobs& out) {
  const Place place = PlaceOf(attrs, in[1].shape_);
  OpContext training = context;  // what forward kept is there
  training.is_train = true;
  const GpuSpare spare = SpareOf(attrs, training, in[5], place.channels);
  const int type = in[1].type_flag_, threads = 512;
  const gpu::Grid channels{(place.channels + 31) / 32, threads,
                           threads * static_cast<int>(sizeof(double))};
  gpu::Launch(context, {"layer_norm.cu", "layer_norm_parameters"}, type, channels, in[0].dptr_,
              in[1].dptr_, in[2].dptr_, in[3].dptr_, out[1].dptr_, out[2].dptr_, place, spare,
              static_cast<int>(request[1]), static_cast<int>(request[2]));
  if (request[0] == mxnet::kNullOp) return;
  gpu::Launch(context, {"layer_norm.cu", "layer_norm_backward"}, type, BlockPerRow(place),
              in[0].dptr_, in[1].dptr_, in[2].dptr_, in[3].dptr_, in[4].dptr_, out[0].dptr_,
              place, spare, static_cast<int>(request[0]));
}

}  // namespace ops
}  // namespace memonger
