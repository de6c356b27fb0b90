/*
 * BatchNorm and ReLU, with a convolution behind or without, on a GPU: MXNet's own operators, which
 * are cuDNN's unless `cudnn_off`, so averages and gradients are those of an unplanned network.
 *
 * Backward normalises once more, by the same code: nothing is kept but BatchNorm's input. It works
 * on the whole batch; parts would save nothing, for cuDNN needs ReLU's whole gradient.
 */
#include "ops/norms/batch_norm.h"

#include "ops/convolutions/bn_relu_convolution.h"
#include "ops/gpu/operators.h"

namespace memonger {
namespace ops {
namespace {

const Requests kWriteAll(3, mxnet::kWriteTo);

const Delegate& Relu() {
  static const Delegate relu("relu", "", {});
  return relu;
}

// in: data gamma beta moving_mean moving_var. Writes BatchNorm's output to z.
void Normalise(const Delegate& norm, const OpContext& context, const Blobs& in, const TBlob& z,
               const TBlob& mean, const TBlob& invstd) {
  norm.Run(context, {in[0], in[1], in[2], in[3], in[4]}, kWriteAll, {z, mean, invstd});
}

// z, which is BatchNorm's or ReLU's output, becomes the gradient of BatchNorm's output.
void ReluGradient(const OpContext& context, const TBlob& gradient, const TBlob& z) {
  static const Delegate backward = Relu().As("_backward_relu");
  backward.Run(context, {gradient, z}, {mxnet::kWriteInplace}, {z});
}

// in: (unused) data gamma beta mean invstd moving_mean moving_var
void NormBackward(const StockNorm& norm, const OpContext& context, const TBlob& gradient,
                  const Blobs& in, const Requests& request, const Blobs& out) {
  norm.backward.Run(context, {gradient, in[4], in[5], in[1], in[2], in[3], in[6], in[7]},
                    {request[0], request[1], request[2]}, {out[0], out[1], out[2]});
}

// The same as forward: averages have moved, and are left alone.
void NormaliseAgain(const StockNorm& norm, const OpContext& context, const Blobs& in,
                    const TBlob& z) {
  Normalise(norm.again, context, {in[1], in[2], in[3], in[6], in[7]}, z, in[4], in[5]);
}

bool IsWritten(OpReqType request) {
  return request == mxnet::kWriteTo || request == mxnet::kWriteInplace;
}

// Memory of the step that is free again when the operator has run.
TBlob ScratchLike(const OpContext& context, const TBlob& like) {
  const int64_t bytes = like.Size() * mshadow::mshadow_sizeof(like.type_flag_);
  return TBlob(Scratch(context, bytes), like.shape_, like.dev_mask(), like.type_flag_,
               like.dev_id());
}

// An array of the data's shape beside the step's memory, which a step planned for a CPU
// did not count. Convolutions use the scratch memory themselves.
class Temporary {
 public:
  explicit Temporary(const OpContext& context) : context_(context) {}
  ~Temporary() noexcept(false) {
    if (!arrays_.empty()) gpu::Wait(context_);  // before its memory goes to somebody else
  }
  TBlob Like(const TBlob& like) {
    arrays_.emplace_back(like.shape_, context_.run_ctx.ctx, false, like.type_flag_);
    return arrays_.back().data();
  }

 private:
  const OpContext& context_;
  NDArrays arrays_;
};

TBlob BufferOr(const TBlob& buffer, const TBlob& data, Temporary* temporary) {
  return buffer.shape_ == data.shape_ ? buffer : temporary->Like(data);
}

}  // namespace

void GpuBatchNormReluForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                             const Requests& request, const Blobs& out) {
  const TBlob z = IsWritten(request[0]) ? out[0] : ScratchLike(context, out[0]);
  Normalise(nnvm::get<BatchNormParam>(attrs.parsed).stock->forward, context, in, z, out[1], out[2]);
  if (request[0] != mxnet::kNullOp) {
    Relu().Run(context, {z}, {IsWritten(request[0]) ? mxnet::kWriteInplace : request[0]}, {out[0]});
  }
}

// in: gradient data gamma beta mean invstd moving_mean moving_var
void GpuBatchNormReluBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                              const Requests& request, const Blobs& out) {
  const StockNorm& norm = *nnvm::get<BatchNormParam>(attrs.parsed).stock;
  const TBlob z = ScratchLike(context, in[1]);
  NormaliseAgain(norm, context, in, z);
  ReluGradient(context, in[0], z);
  NormBackward(norm, context, z, in, request, out);
}

void GpuBnReluConvolutionForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                                 const Requests& request, const Blobs& out) {
  const Fused& fused = FusedOf(attrs);
  Temporary temporary(context);
  Blobs conv_in = ConvolutionInputs(in);
  const TBlob z = conv_in[0] = BufferOr(out[3], in[0], &temporary);
  Normalise(fused.norm.stock->forward, context, in, z, out[1], out[2]);
  if (request[0] == mxnet::kNullOp) return;
  Relu().Run(context, {z}, {mxnet::kWriteInplace}, {z});
  fused.convolver.forward.Run(context, conv_in, {request[0]}, {out[0]});
}

// in: gradient data gamma beta mean invstd moving_mean moving_var weight [bias]
void GpuBnReluConvolutionBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                                  const Requests& request, const Blobs& out) {
  const Fused& fused = FusedOf(attrs);
  Temporary temporary(context);
  const TBlob z = BufferOr(out.back(), in[1], &temporary);
  NormaliseAgain(*fused.norm.stock, context, in, z);
  Relu().Run(context, {z}, {mxnet::kWriteInplace}, {z});
  // The gradient of ReLU's output goes where that of the data goes, if that may be written.
  const TBlob gradient = IsWritten(request[0]) ? out[0] : temporary.Like(in[1]);
  Blobs conv_in{in[0], z}, conv_out{gradient};
  Requests conv_request{mxnet::kWriteTo};
  for (uint32_t i = 0; i < fused.Parameters(); ++i) {
    conv_in.push_back(in[8 + i]);
    conv_out.push_back(out[3 + i]);
    conv_request.push_back(request[3 + i]);
  }
  fused.convolver.Backward(context, conv_in, conv_request, conv_out);
  ReluGradient(context, gradient, z);
  NormBackward(*fused.norm.stock, context, z, in, request, out);
}

}  // namespace ops
}  // namespace memonger
