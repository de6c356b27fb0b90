/*
 * memonger_batch_norm_relu: BatchNorm and ReLU in one, keeping BatchNorm's input alone.
 *
 * In MXNet the pair keeps BatchNorm's input and ReLU's output. ReLU's output cannot be inverted
 * (InPlace-ABN needs an invertible activation), but no mask is needed either: backward has the
 * input and the statistics, so the sign of the normalised value is computed again, bit for bit.
 */
#include "./batch_norm_relu.h"
#include "./register.h"

namespace memonger {
namespace ops {
namespace {

const BatchNormParam& ParamOf(const NodeAttrs& attrs) {
  return nnvm::get<BatchNormParam>(attrs.parsed);
}

template <class T>
void NormReluForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                     const Requests& request, const Blobs& out) {
  const BatchNormParam& param = ParamOf(attrs);
  const NormRelu<T> norm(param, in[0].shape_);
  norm.Prepare(context.is_train && !param.use_global_stats, in, out);
  norm.Forward(in, out, request[0], out[0]);
}

template <class T>
void NormReluBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                      const Requests& request, const Blobs& out) {
  const BatchNormParam& param = ParamOf(attrs);
  const bool batch = context.is_train && !param.use_global_stats;
  NormRelu<T>(param, in[1].shape_).Backward(batch, in, in[0], request, out);
}

MEMONGER_REAL_COMPUTE(Forward, NormReluForward, 0)
MEMONGER_REAL_COMPUTE(Backward, NormReluBackward, 1)

}  // namespace

void RegisterBatchNormRelu() {
  RegisterNorm("memonger_batch_norm_relu",
               "BatchNorm followed by ReLU, keeping BatchNorm's input and no output.")
      .set_num_outputs(3)
      .set_attr_parser(ParseParam<BatchNormParam>)
      .set_attr<nnvm::FListInputNames>("FListInputNames",
          NameList({"data", "gamma", "beta", "moving_mean", "moving_var"}))
      .set_attr<nnvm::FListOutputNames>("FListOutputNames",
          NameList({"output", "mean", "invstd"}))
      .set_attr<mxnet::FInferShape>("FInferShape",
          [](const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
            return BatchNormShape(attrs, ParamOf(attrs).axis, in, out);
          })
      .set_attr<nnvm::FInferType>("FInferType", BatchNormType)
      .set_attr<mxnet::FCompute>("FCompute<cpu>", Forward)
      .set_attr<nnvm::FGradient>("FGradient",
          [](const ObjectPtr& n, const std::vector<NodeEntry>& gradients) {
            const auto& in = n->inputs;
            return NormGradients(
                BackwardNode(n, "_backward_memonger_batch_norm_relu",
                             {gradients[0], in[0], in[1], in[2], NodeEntry{n, 1, 0},
                              NodeEntry{n, 2, 0}, in[3], in[4]}), 3);
          })
      .add_arguments(BatchNormParam::__FIELDS__());

  MEMONGER_OP("_backward_memonger_batch_norm_relu")
      .set_num_inputs(8)
      .set_num_outputs(3)
      .set_attr_parser(ParseParam<BatchNormParam>)
      .set_attr<nnvm::TIsBackward>("TIsBackward", true)
      .set_attr<nnvm::FMutateInputs>("FMutateInputs",
          [](const NodeAttrs&) { return std::vector<uint32_t>{6, 7}; })
      .set_attr<nnvm::FInplaceOption>("FInplaceOption", InplaceFirst())
      .set_attr<mxnet::FCompute>("FCompute<cpu>", Backward);
}

}  // namespace ops
}  // namespace memonger
