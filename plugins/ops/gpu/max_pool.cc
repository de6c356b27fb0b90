/* Max pooling on a GPU: cuda/max_pool.cu. */
#include "ops/gpu/operators.h"
#include "ops/frame/params.h"

namespace memonger {
namespace ops {
namespace {

struct PoolShape {  // as in the kernel
  int size[3], window[3], stride[3], pad[3], output[3];
  int64_t channels;
};

struct Format {
  int paired, words;
};

PoolShape ShapeOf(const Windows& windows) {
  PoolShape s;
  for (int axis = 0; axis < 3; ++axis) {
    s.size[axis] = windows.Size()[axis];
    s.window[axis] = windows.Kernel()[axis];
    s.stride[axis] = windows.Stride()[axis];
    s.pad[axis] = windows.Pad()[axis];
    s.output[axis] = windows.Output()[axis];
  }
  s.channels = windows.ChannelsBehind();
  return s;
}

Format FormatOf(const Windows& windows, const TBlob& indices) {
  return Format{WidthOf(windows) == kNibble, indices.type_flag_ == mshadow::kInt32};
}

}  // namespace

void GpuMaxPoolForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                       const Requests& request, const Blobs& out) {
  const Windows windows = WindowsOf(attrs, in[0].shape_);
  gpu::Launch(context, {"max_pool.cu", "max_pool_forward"}, in[0].type_flag_,
              gpu::Threads(out[1].Size()), in[0].dptr_, out[0].dptr_, out[1].dptr_,
              windows.Rows(), windows.RowSize(), static_cast<int>(request[0]),
              FormatOf(windows, out[1]), ShapeOf(windows));
}

void GpuMaxPoolBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                        const Requests& request, const Blobs& out) {
  if (request[0] == mxnet::kNullOp) return;
  const Windows windows = WindowsOf(attrs, out[0].shape_);
  const int64_t count = out[0].Size();
  gpu::Launch(context, {"max_pool.cu", "max_pool_backward"}, in[0].type_flag_,
              gpu::Threads(count), in[0].dptr_, in[1].dptr_, out[0].dptr_, count,
              windows.RowSize(), static_cast<int>(request[0]), FormatOf(windows, in[1]),
              ShapeOf(windows));
}

}  // namespace ops
}  // namespace memonger
