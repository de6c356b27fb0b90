/*
 * memonger_batch_norm_relu: BatchNorm and ReLU in one, keeping BatchNorm's input alone.
 *
 * In MXNet the pair keeps BatchNorm's input and ReLU's output. ReLU's output cannot be inverted
 * (InPlace-ABN needs an invertible activation), but no mask is needed either: backward has the
 * input and the statistics, so the sign of the normalised value is computed again, bit for bit.
 */
#include "./batch_norm.h"
#include "./lanes.h"
#include "./register.h"

namespace memonger {
namespace ops {
namespace {

const BatchNormParam& ParamOf(const NodeAttrs& attrs) {
  return nnvm::get<BatchNormParam>(attrs.parsed);
}

template <class T>
BatchNorm<T> NormOf(const NodeAttrs& attrs, const TShape& shape) {
  const BatchNormParam& p = ParamOf(attrs);
  return BatchNorm<T>(shape, p.axis, p.eps, p.momentum, p.fix_gamma);
}

template <class T>
void NormReluForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                     const Requests& request, const Blobs& out) {
  using A = Acc<T>;
  const auto norm = NormOf<T>(attrs, in[0].shape_);
  const bool batch = context.is_train && !ParamOf(attrs).use_global_stats;
  const T* x = in[0].dptr<T>();
  A *gamma = in[1].dptr<A>(), *mean = out[1].dptr<A>(), *invstd = out[2].dptr<A>();
  norm.Statistics(batch, x, in[3].dptr<A>(), in[4].dptr<A>(), mean, invstd);
  if (norm.fix_gamma) std::fill(gamma, gamma + norm.channels.count, A(1));  // as MXNet does
  T* y = out[0].dptr<T>();
  const OpReqType how = request[0];
  if (how == mxnet::kNullOp) return;
  const bool add = how == mxnet::kAddTo;
  norm.Normalise(x, mean, invstd, gamma, in[2].dptr<A>(), [y, add](int64_t i, T z) {
    const T value = z <= T(0) ? T(0) : z;
    y[i] = add ? T(y[i] + value) : value;
  });
}

template <class T>
void NormReluBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                      const Requests& request, const Blobs& out) {
  using A = Acc<T>;
  const auto norm = NormOf<T>(attrs, in[1].shape_);
  const bool batch = context.is_train && !ParamOf(attrs).use_global_stats;
  const T *g = in[0].dptr<T>(), *x = in[1].dptr<T>();
  const A *gamma = in[2].dptr<A>(), *beta = in[3].dptr<A>();
  const A *mean = in[4].dptr<A>(), *invstd = in[5].dptr<A>();
  if (batch) norm.UpdateMoving(mean, invstd, in[6].dptr<A>(), in[7].dptr<A>());
  // Captured by value: what is reached through references could be what the loop writes.
  const auto gradients = [=](int64_t c, int64_t offset, auto step, int64_t length,
                             T* __restrict to) {
    const A m = mean[c], v = invstd[c], w = gamma[c], b = beta[c];
    using L = Lanes<T>;
    T z[Channels::kPiece];
    bool known = true;
    for (int64_t i = 0; i < length; ++i) {
      z[i] = norm.Normalised(x[offset + i * step], m, v, w, b);
      to[i] = g[offset + i * step];
    }
    int64_t i = 0;
    const auto zero = L::All(T(0)), one = L::All(T(1));
    for (; i + L::kWidth <= length; i += L::kWidth) {  // a branch on a sign is mispredicted
      const auto open = L::Above(L::Load(z + i), zero);
      L::Put(to + i, L::Mul(L::Load(to + i), L::Pick(open, one, zero)));
    }
    for (; i < length; ++i) to[i] = to[i] * (z[i] > T(0) ? T(1) : T(0));
    for (i = 0; i < length; ++i) known &= z[i] == z[i];
    for (i = 0; i < length && !known; ++i) {  // MXNet multiplies with NaN where z is NaN
      if (z[i] != z[i]) to[i] = g[offset + i * step] * z[i];
    }
  };
  norm.Backward(batch, x, mean, invstd, gamma, request, gradients, out[0].dptr<T>(),
                out[1].dptr<A>(), out[2].dptr<A>());
}

void Forward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
             const Requests& request, const Blobs& out) {
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       NormReluForward<T>(attrs, context, in, request, out);)
}

void Backward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
              const Requests& request, const Blobs& out) {
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       NormReluBackward<T>(attrs, context, in, request, out);)
}

}  // namespace

void RegisterBatchNormRelu() {
  MEMONGER_OP("memonger_batch_norm_relu")
      .describe("BatchNorm followed by ReLU, keeping BatchNorm's input and no output.")
      .set_num_inputs(5)
      .set_num_outputs(3)
      .set_attr_parser(ParseParam<BatchNormParam>)
      .set_attr<nnvm::FNumVisibleOutputs>("FNumVisibleOutputs", Constant<1>)
      .set_attr<nnvm::FListInputNames>("FListInputNames",
          NameList({"data", "gamma", "beta", "moving_mean", "moving_var"}))
      .set_attr<nnvm::FListOutputNames>("FListOutputNames",
          NameList({"output", "mean", "invstd"}))
      .set_attr<nnvm::FMutateInputs>("FMutateInputs",
          [](const NodeAttrs&) { return std::vector<uint32_t>{3, 4}; })
      .set_attr<mxnet::FInferShape>("FInferShape",
          [](const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
            return BatchNormShape(attrs, ParamOf(attrs).axis, in, out);
          })
      .set_attr<nnvm::FInferType>("FInferType", BatchNormType)
      .set_attr<mxnet::FCompute>("FCompute<cpu>", Forward)
      .set_attr<nnvm::FSetInputVarAttrOnCompose>("FSetInputVarAttrOnCompose", BatchNormInitAux)
      .set_attr<nnvm::FGradient>("FGradient",
          [](const ObjectPtr& n, const std::vector<NodeEntry>& gradients) {
            const auto& in = n->inputs;
            auto result = OutputsOf(
                BackwardNode(n, "_backward_memonger_batch_norm_relu",
                             {gradients[0], in[0], in[1], in[2], NodeEntry{n, 1, 0},
                              NodeEntry{n, 2, 0}, in[3], in[4]}), 3);
            result.push_back(NoGradient());
            result.push_back(NoGradient());
            return result;
          })
      .add_argument("data", "NDArray-or-Symbol", "Input.")
      .add_argument("gamma", "NDArray-or-Symbol", "Scale.")
      .add_argument("beta", "NDArray-or-Symbol", "Shift.")
      .add_argument("moving_mean", "NDArray-or-Symbol", "Running mean.")
      .add_argument("moving_var", "NDArray-or-Symbol", "Running variance.")
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
