/*
 * memonger_batch_norm_relu: BatchNorm and ReLU in one, keeping BatchNorm's input alone.
 *
 * In MXNet the pair keeps BatchNorm's input and ReLU's output. ReLU's output cannot be inverted
 * (InPlace-ABN needs an invertible activation), but no mask is needed either: backward has the
 * input and the statistics, so the sign of the normalised value is computed again, bit for bit.
 */
#include "./batch_norm_relu.h"

#include <algorithm>

#include "./batch_norm.h"
#include "./beside_mkldnn.h"
#include "./lanes.h"
#include "./pieces.h"
#include "./register.h"

namespace memonger {
namespace ops {
namespace {

const BatchNormParam& ParamOf(const NodeAttrs& attrs) {
  return nnvm::get<BatchNormParam>(attrs.parsed);
}

template <class T>
struct NormRelu : BatchNorm<T> {
  using A = Acc<T>;
  using BatchNorm<T>::channels;
  using BatchNorm<T>::fix_gamma;
  const bool nan_becomes_zero;

  NormRelu(const BatchNormParam& param, const TBlob& data)
      : BatchNorm<T>(data.shape_, param.axis, param.eps, param.momentum, param.fix_gamma),
        nan_becomes_zero(NanBecomesZero(param.stands_for, data)) {}

  void Prepare(bool batch, const Blobs& in, const Blobs& statistics) const {
    this->Statistics(batch, in[0].dptr<T>(), in[3].dptr<A>(), in[4].dptr<A>(),
                     statistics[1].dptr<A>(), statistics[2].dptr<A>());
    A* gamma = in[1].dptr<A>();
    if (fix_gamma) std::fill(gamma, gamma + channels.count, A(1));  // as MXNet does
  }

  void Forward(const Blobs& in, const Blobs& statistics, OpReqType request,
               const TBlob& out) const {
    if (request == mxnet::kNullOp) return;
    T* y = out.dptr<T>();
    const bool add = request == mxnet::kAddTo;
    const auto normalise = [&](auto relu) {
      this->Normalise(in[0].dptr<T>(), statistics[1].dptr<A>(), statistics[2].dptr<A>(),
                      in[1].dptr<A>(), in[2].dptr<A>(), [y, add, relu](int64_t i, T z) {
                        const T value = relu(z);
                        y[i] = add ? T(y[i] + value) : value;
                      });
    };
    if (nan_becomes_zero) {
      normalise([](T z) { return z > T(0) ? z : T(0); });
    } else {
      normalise([](T z) { return z <= T(0) ? T(0) : z; });
    }
  }

  void Backward(bool batch, const Blobs& in, const TBlob& gradient, const Requests& request,
                const Blobs& out) const {
    const T *g = gradient.dptr<T>(), *x = in[1].dptr<T>();
    const A *gamma = in[2].dptr<A>(), *beta = in[3].dptr<A>();
    const A *mean = in[4].dptr<A>(), *invstd = in[5].dptr<A>();
    if (batch) this->UpdateMoving(mean, invstd, in[6].dptr<A>(), in[7].dptr<A>());
    const BatchNorm<T>& norm = *this;
    const bool nan_matters = !nan_becomes_zero;
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
      for (i = 0; i < length && nan_matters; ++i) known &= z[i] == z[i];
      for (i = 0; i < length && !known; ++i) {  // relu's gradient is the product with NaN there
        if (z[i] != z[i]) to[i] = g[offset + i * step] * z[i];
      }
    };
    BatchNorm<T>::Backward(batch, x, mean, invstd, gamma, request, gradients, out[0].dptr<T>(),
                           out[1].dptr<A>(), out[2].dptr<A>());
  }
};

// Beside MKLDNN, whose BatchNorm is not MXNet's own to the last bit either: sums in double, and wide
// loops, which want `inner` not to be short.
void BackwardInPieces(const NormRelu<float>& norm, bool batch, const Blobs& in,
                      const TBlob& gradient, const Requests& request, const Blobs& out) {
  const Channels& channels = norm.channels;
  const float *g = gradient.dptr<float>(), *x = in[1].dptr<float>();
  const float *gamma = in[2].dptr<float>(), *beta = in[3].dptr<float>();
  const float *mean = in[4].dptr<float>(), *invstd = in[5].dptr<float>();
  float *dx = out[0].dptr<float>(), *dgamma = out[1].dptr<float>(), *dbeta = out[2].dptr<float>();
  if (batch) norm.UpdateMoving(mean, invstd, in[6].dptr<float>(), in[7].dptr<float>());
  const double items = static_cast<double>(channels.Items());
#pragma omp parallel for if (channels.Size() >= kParallelFrom)
  for (int64_t c = 0; c < channels.count; ++c) {
    const float s = invstd[c], w = norm.fix_gamma ? 1.0f : gamma[c];
    const NormThenRelu<float> how{mean[c], s, w, beta[c], !norm.nan_becomes_zero};
    double sums[2] = {0, 0};
    channels.Pieces(c, [&](int64_t offset, auto, int64_t length) {
      AddReluSums(x + offset, g + offset, length, how, sums);
    });
    norm.StoreParameters(request, sums[0], sums[1] * s, dgamma + c, dbeta + c);
    if (request[0] == mxnet::kNullOp) continue;
    const double shift = batch ? sums[0] / items : 0, slope = batch ? sums[1] * s * s / items : 0;
    channels.Pieces(c, [&](int64_t offset, auto, int64_t length) {
      float sum[Channels::kPiece];
      const bool add = request[0] == mxnet::kAddTo;
      ReluGradient(x + offset, g + offset, length, how, static_cast<float>(shift),
                   static_cast<float>(slope), s * w, add ? sum : dx + offset);
      for (int64_t i = 0; i < length && add; ++i) dx[offset + i] += sum[i];
    });
  }
}

constexpr const char* kName = "memonger_batch_norm_relu";

void Forward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
             const Requests& request, const Blobs& out) {
  const BatchNormParam& param = ParamOf(attrs);
  NormReluStatistics(param, context.is_train && !param.use_global_stats, in, out);
  NormReluForward(param, in, out, request[0], out[0]);
}

void Backward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
              const Requests& request, const Blobs& out) {
  const BatchNormParam& param = ParamOf(attrs);
  NormReluBackward(param, context.is_train && !param.use_global_stats, in, in[0], request, out);
}

}  // namespace

void NormReluStatistics(const BatchNormParam& param, bool batch, const Blobs& in,
                        const Blobs& statistics) {
  MEMONGER_REAL_SWITCH(in[0].type_flag_, kName, T,
                       NormRelu<T>(param, in[0]).Prepare(batch, in, statistics);)
}

void NormReluForward(const BatchNormParam& param, const Blobs& in, const Blobs& statistics,
                     OpReqType request, const TBlob& out) {
  MEMONGER_REAL_SWITCH(in[0].type_flag_, kName, T,
                       NormRelu<T>(param, in[0]).Forward(in, statistics, request, out);)
}

void NormReluBackward(const BatchNormParam& param, bool batch, const Blobs& in,
                      const TBlob& gradient, const Requests& request, const Blobs& out) {
  if (MkldnnActivates(in[1])) {
    const NormRelu<float> norm(param, in[1]);
    if (norm.channels.inner >= 16) return BackwardInPieces(norm, batch, in, gradient, request, out);
  }
  MEMONGER_REAL_SWITCH(in[1].type_flag_, kName, T,
                       NormRelu<T>(param, in[1]).Backward(batch, in, gradient, request,
                                                                 out);)
}

void RegisterBatchNormRelu() {
  RegisterNorm(kName,
               "BatchNorm followed by ReLU, keeping BatchNorm's input and no output.")
      .Outputs(3)
      .Parser(ParseParam<BatchNormParam>)
      .InputNames({"data", "gamma", "beta", "moving_mean", "moving_var"})
      .OutputNames({"output", "mean", "invstd"})
      .InferShape([](const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
        return BatchNormShape(attrs, ParamOf(attrs).axis, in, out);
      })
      .InferType(BatchNormType)
      .Compute(Forward)
      .Gradient({Input(0), Input(1), Input(2), Output(1), Output(2), Input(3), Input(4)}, 3)
      .Arguments(FieldsOf<BatchNormParam>());

  Operator("_backward_memonger_batch_norm_relu")
      .Inputs(8)
      .Outputs(3)
      .Parser(ParseParam<BatchNormParam>)
      .IsBackward()
      .Changes({6, 7})
      .InplaceFirst()
      .Compute(Backward);
}

}  // namespace ops
}  // namespace memonger
