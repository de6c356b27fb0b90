/* Dropout on a GPU: cuda/dropout.cu. */
#include "ops/gpu/operators.h"
#include "ops/frame/params.h"

namespace memonger {
namespace ops {
namespace {

// MXNet's generator on a GPU: 32768 states, each of which makes at least 64 numbers a call.
constexpr int64_t kStates = 32768, kPerState = 64;

void Apply(const MaskDropoutParam& param, const OpContext& context, const TBlob& from,
           const TBlob& mask, OpReqType request, const TBlob& to) {
  const int64_t count = to.Size();
  const int type = to.type_flag_;
  const float factor = 1.0f / (1.0f - param.p);
  gpu::Launch(context, {"dropout.cu", "dropout_apply"}, type, gpu::Threads(count), from.dptr_,
              mask.dptr_, to.dptr_, count, static_cast<int>(request), gpu::Rounded(type, factor),
              gpu::Rounded(type, 0.0f * factor));
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
  const int64_t bytes = out[1].Size();
  gpu::Launch(context, {"dropout.cu", "dropout_clear"}, type, gpu::Threads(bytes), out[1].dptr_,
              bytes);
  if (request[0] == mxnet::kNullOp || size == 0) return;
  const int64_t threads = std::min((size + kPerState - 1) / kPerState, kStates);
  // The generator is a pointer to its states and nothing else.
  void* states = *static_cast<void**>(context.requested[0].ptr_);
  gpu::Launch(context, {"dropout.cu", "dropout_draw"}, type, gpu::Threads(threads), out[1].dptr_,
              size, (size + threads - 1) / threads, states, static_cast<int>(threads), keep);
  Apply(param, context, in[0], out[1], request[0], out[0]);
}

void GpuDropoutBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                        const Requests& request, const Blobs& out) {
  if (request[0] == mxnet::kNullOp) return;
  Apply(nnvm::get<MaskDropoutParam>(attrs.parsed), context, in[0], in[1], request[0], out[0]);
}

}  // namespace ops
}  // namespace memonger
