/* Dropout on a GPU: cuda/dropout.cu. */
#include "./gpu_operators.h"
#include "./params.h"

namespace memonger {
namespace ops {
namespace {

// MXNet's generator on a GPU: 32768 states, each of which makes at least 64 numbers a call.
constexpr int64_t kStates = 32768, kPerState = 64;

struct Axes {  // as in the kernel
  int count;
  int64_t size[8], stride[8];
};

// Neighbouring axes that all share their mask elements, or all do not, are one.
Axes AxesOf(const TShape& data, const TShape& mask) {
  Axes axes{0, {}, {}};
  int64_t stride = 1;
  bool shared_before = false;
  int64_t size[8], strides[8];
  int count = 0;
  for (int i = data.ndim() - 1; i >= 0; --i) {
    if (data[i] == 1) continue;
    const bool shared = mask[i] == 1;
    if (count > 0 && shared == shared_before) {
      size[count - 1] *= data[i];
    } else {
      CHECK_LT(count, 8) << "memonger_mask_dropout: too many axes for a GPU: " << data;
      size[count] = data[i];
      strides[count++] = shared ? 0 : stride;
    }
    if (!shared) stride *= data[i];
    shared_before = shared;
  }
  axes.count = count;
  for (int i = 0; i < count; ++i) {
    axes.size[i] = size[count - 1 - i];
    axes.stride[i] = strides[count - 1 - i];
  }
  return axes;
}

void Apply(const MaskDropoutParam& param, const OpContext& context, const TBlob& from,
           const TBlob& mask, OpReqType request, const TBlob& to) {
  const int64_t count = to.Size();
  const int type = to.type_flag_;
  const float factor = 1.0f / (1.0f - param.p);
  gpu::Launch(context, {"dropout.cu", "dropout_apply"}, type, gpu::Threads(count), from.dptr_,
              mask.dptr_, to.dptr_, count, static_cast<int>(request), gpu::Rounded(type, factor),
              gpu::Rounded(type, 0.0f * factor),
              AxesOf(to.shape_, MaskShape(to.shape_, param.axes)));
}

}  // namespace

void GpuDropoutForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                       const Requests& request, const Blobs& out) {
  const auto& param = nnvm::get<MaskDropoutParam>(attrs.parsed);
  const float keep = 1.0f - param.p;
  const int type = in[0].type_flag_;
  const int64_t size = in[0].Size();
  if (!(keep < 1 && (context.is_train || param.mode == kAlways))) {
    gpu::Launch(context, {"dropout.cu", "dropout_pass"}, type, gpu::Threads(size), in[0].dptr_,
                out[1].dptr_, out[0].dptr_, size, static_cast<int>(request[0]));
    return;
  }
  const int64_t count = MaskShape(in[0].shape_, param.axes).Size(), bytes = out[1].Size();
  gpu::Launch(context, {"dropout.cu", "dropout_clear"}, type, gpu::Threads(bytes), out[1].dptr_,
              bytes);
  if (request[0] == mxnet::kNullOp || count == 0) return;
  const int64_t threads = std::min((count + kPerState - 1) / kPerState, kStates);
  // The generator is a pointer to its states and nothing else.
  void* states = *static_cast<void**>(context.requested[0].ptr_);
  gpu::Launch(context, {"dropout.cu", "dropout_draw"}, type, gpu::Threads(threads), out[1].dptr_,
              count, (count + threads - 1) / threads, states, static_cast<int>(threads), keep,
              static_cast<int>(param.axes.ndim() == 0));
  Apply(param, context, in[0], out[1], request[0], out[0]);
}

void GpuDropoutBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                        const Requests& request, const Blobs& out) {
  if (request[0] == mxnet::kNullOp) return;
  Apply(nnvm::get<MaskDropoutParam>(attrs.parsed), context, in[0], in[1], request[0], out[0]);
}

}  // namespace ops
}  // namespace memonger
