/* Dropout on a GPU: cuda/dropout.cu. */
#include "ops/frame/params.h"
#include "ops/gpu/operators.h"

namespace memonger {
namespace ops {
namespace {

gpu::Kernel forward("dropout.cu", "dropout_forward");
gpu::Kernel backward("dropout.cu", "dropout_backward");
gpu::Kernel pass("dropout.cu", "dropout_pass");

// MXNet's generator on a GPU: 32768 states, each of which makes at least 64 numbers a call.
constexpr int64_t kStates = 32768, kPerState = 64;

// What an element is multiplied with: by its bit.
struct Factors {
  float kept_factor, dropped_factor;
  Factors(const MaskDropoutParam& param, int type) {
    const float factor = 1.0f / (1.0f - param.p);
    kept_factor = gpu::Rounded(type, factor);
    dropped_factor = gpu::Rounded(type, 0.0f * factor);
  }
};

}  // namespace

void GpuDropoutForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                       const Requests& request, const Blobs& out) {
  const auto& param = nnvm::get<MaskDropoutParam>(attrs.parsed);
  const float keep = 1.0f - param.p;
  const int type = in[0].type_flag_;
  const int64_t size = in[0].Size();
  if (!(keep < 1 && (context.is_train || param.mode == kAlways))) {
    gpu::LaunchElements(context, &pass, type, in[0], out[0], out[1], size,
                        static_cast<int>(request[0]));
    return;
  }
  if (request[0] == mxnet::kNullOp || size == 0) return;  // as MXNet: nothing is drawn
  const int64_t states = std::min((size + kPerState - 1) / kPerState, kStates);
  const int64_t step = (size + states - 1) / states;
  const int64_t used = (size + step - 1) / step;  // the last ones may have no elements
  const Factors factors(param, type);
  // The generator is a pointer to its states and nothing else.
  void* generator = *static_cast<void**>(context.requested[0].ptr_);
  gpu::Launch(context, &forward, type, (used + gpu::kStatesOfBlock - 1) / gpu::kStatesOfBlock,
              in[0].dptr_, out[0].dptr_, out[1].dptr_, size, static_cast<int>(request[0]),
              generator, static_cast<int>(step), keep, factors.kept_factor, factors.dropped_factor);
}

void GpuDropoutBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                        const Requests& request, const Blobs& out) {
  if (request[0] == mxnet::kNullOp) return;
  const int type = out[0].type_flag_;
  const Factors factors(nnvm::get<MaskDropoutParam>(attrs.parsed), type);
  gpu::LaunchElements(context, &backward, type, in[0], in[1], out[0], out[0].Size(),
                      static_cast<int>(request[0]), factors.kept_factor, factors.dropped_factor);
}

}  // namespace ops
}  // namespace memonger
