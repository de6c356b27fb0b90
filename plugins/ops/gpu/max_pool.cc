/* Max pooling on a GPU: cuda/max_pool.cu. */
#include "ops/frame/params.h"
#include "ops/gpu/operators.h"

namespace memonger {
namespace ops {
namespace {

gpu::Kernel forward("max_pool.cu", "max_pool_forward");
gpu::Kernel backward("max_pool.cu", "max_pool_backward");

gpu::Divider DividerOf(int64_t by) {
  if (by < 2) return {1, 0, 0};
  int bits = 0;  // 2^bits is at least `by`
  while ((int64_t{1} << bits) < by) ++bits;
  return {static_cast<int>(by), static_cast<unsigned>((uint64_t{1} << (31 + bits)) / by + 1),
          bits - 1};
}

// Kernels count threads, and places in a row, in 32 bits.
int Counted(const NodeAttrs& attrs, int64_t count) {
  if (count > 0x7fffffff) Refuse(attrs, "the data have too many elements for a GPU");
  return static_cast<int>(count);
}

gpu::Pool PoolOf(const Windows& windows, const TBlob& indices) {
  gpu::Pool pool;
  const int64_t channels = windows.ChannelsBehind();
  for (int axis = 0; axis < 3; ++axis) {
    pool.size[axis] = windows.Size()[axis];
    pool.window[axis] = windows.Kernel()[axis];
    pool.pad[axis] = windows.Pad()[axis];
    pool.output[axis] = windows.Output()[axis];
    pool.stride[axis] = DividerOf(windows.Stride()[axis]);
    pool.outputs[axis] = DividerOf(pool.output[axis]);
    pool.sizes[axis] = DividerOf(pool.size[axis]);
  }
  pool.channels = DividerOf(channels);
  const auto parts = [](int64_t count, int of_thread) {
    return DividerOf((count + of_thread - 1) / of_thread);
  };
  pool.groups = parts(windows.RowSize(), gpu::kOutputsOfThread);
  pool.segments = parts(channels * pool.size[2], gpu::kInputsOfThread);
  pool.paired = WidthOf(windows) == kNibble;
  pool.words = indices.type_flag_ == mshadow::kInt32;
  return pool;
}

}  // namespace

void GpuMaxPoolForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                       const Requests& request, const Blobs& out) {
  const Windows windows = WindowsOf(attrs, in[0].shape_);
  const gpu::Pool pool = PoolOf(windows, out[1]);
  const int threads = Counted(attrs, windows.Rows() * pool.groups.by);
  Counted(attrs, in[0].Size() / std::max<int64_t>(1, windows.Rows()));
  gpu::Launch(context, &forward, in[0].type_flag_, gpu::Blocks(threads, 1), in[0].dptr_,
              out[0].dptr_, out[1].dptr_, static_cast<int>(windows.Rows()),
              static_cast<int>(windows.RowSize()), static_cast<int>(request[0]), pool);
}

void GpuMaxPoolBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                        const Requests& request, const Blobs& out) {
  if (request[0] == mxnet::kNullOp) return;
  const Windows windows = WindowsOf(attrs, out[0].shape_);
  const gpu::Pool pool = PoolOf(windows, in[1]);
  const int64_t lines = windows.Rows() * pool.size[0] * pool.size[1];
  const int threads = Counted(attrs, lines * pool.segments.by);
  gpu::Launch(context, &backward, in[0].type_flag_, gpu::Blocks(threads, 1), in[0].dptr_,
              in[1].dptr_, out[0].dptr_, static_cast<int>(lines),
              static_cast<int>(windows.RowSize()), static_cast<int>(request[0]), pool);
}

}  // namespace ops
}  // namespace memonger
