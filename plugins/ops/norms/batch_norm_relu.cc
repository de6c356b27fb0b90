/*
 * memonger_batch_norm_relu: BatchNorm and ReLU in one, keeping BatchNorm's input alone.
 *
 * In MXNet the pair keeps BatchNorm's input and ReLU's output. ReLU's output cannot be inverted
 * (InPlace-ABN needs an invertible activation), but no mask is needed either: backward has the
 * input and the statistics, so the sign of the normalised value is computed again, bit for bit.
 *
 * The order of summation, the places where double and float meet, and the rounding of
 * intermediates to the data's dtype are those of MXNet's CPU operator without MKLDNN. Statistics
 * and parameters are float32 for float16 data, as in MXNet. "invstd" is 1 / sqrt(variance + eps).
 */
#include "ops/norms/batch_norm_relu.h"

#include <cmath>
#include <type_traits>

#include "ops/frame/mkldnn.h"
#include "ops/norms/batch_norm.h"
#include "ops/register.h"

namespace memonger {
namespace ops {
namespace {

const BatchNormParam& ParamOf(const NodeAttrs& attrs) {
  return nnvm::get<BatchNormParam>(attrs.parsed);
}

template <class A>
struct Two {
  A first, second;
};

// Adds of(i), two numbers, for i below `length`: front to back, as MXNet makes sums.
using InOrder = std::true_type;
template <class A, class Of>
void AddAll(InOrder, int64_t length, Two<A>* sums, Of of) {
  A first = sums->first, second = sums->second;
  for (int64_t i = 0; i < length; ++i) {
    const auto terms = of(i);
    first += terms.first;
    second += terms.second;
  }
  *sums = {first, second};
}

// Beside MKLDNN, whose sums are not MXNet's own to the last bit either.
using InAnyOrder = std::false_type;
template <class Of>
void AddAll(InAnyOrder, int64_t length, Two<double>* sums, Of of) {
  double first = 0, second = 0;
#pragma omp simd reduction(+ : first, second)
  for (int64_t i = 0; i < length; ++i) {
    const auto terms = of(i);
    first += terms.first;
    second += terms.second;
  }
  *sums = {sums->first + first, sums->second + second};
}

// How BatchNorm and ReLU make an output of an input x.
template <class T>
struct NormThenRelu {
  using A = Acc<T>;
  A mean, invstd, gamma, beta;
  bool nan_matters;  // ReLU's output and gradient are NaN at NaN

  // Products and sums are not fused: ReLU's mask depends on a sign that backward finds again, and
  // MXNet rounds both.
  T Normalised(T x) const { return ((x - mean) * invstd) * gamma + beta; }

  T Output(T x) const {
    const T z = Normalised(x), zero(0.0f);
    const T positive = z > zero ? z : zero, not_negative = z <= zero ? zero : z;
    return nan_matters ? not_negative : positive;
  }

  // The gradient g behind ReLU.
  T Gate(T x, T g) const {
    const T z = Normalised(x), zero(0.0f);
    const T closed = nan_matters && z != z ? z : zero;
    return g * (z > zero ? T(1.0f) : closed);
  }
};

template <class T, class Order>
struct NormRelu {
  using A = Acc<T>;
  using Sums = Two<typename std::conditional<Order::value, A, double>::type>;
  const BatchNormParam& param;
  const Channels channels;
  const bool nan_matters;

  NormRelu(const BatchNormParam& parameters, const TBlob& data)
      : param(parameters),
        channels(data.shape_, param.axis),
        nan_matters(!NanBecomesZero(param.stands_for, data)) {}

  // The sums of of(place) for all elements of channel c.
  template <class Of>
  Sums SumsOf(int64_t c, Of of) const {
    Sums result{}, *const sums = &result;
    channels.ForEachRun(c, [=](int64_t, int64_t place, int64_t length, auto step) {
      AddAll(Order(), length, sums, [=](int64_t i) { return of(place + i * step); });
    });
    return result;
  }

  A InvStd(A variance) const {
    return static_cast<A>(1.0 / std::sqrt(variance + T(param.eps)));  // a half's sum is a half
  }

  // in: data gamma beta moving_mean moving_var; statistics: (unused) mean invstd.
  void Prepare(bool batch, const Blobs& in, const Blobs& statistics) const {
    const T* x = in[0].dptr<T>();
    const A *moving_mean = in[3].dptr<A>(), *moving_var = in[4].dptr<A>();
    A *mean = statistics[1].dptr<A>(), *invstd = statistics[2].dptr<A>();
    const size_t items = channels.Items();
    FixGamma(param.fix_gamma, channels.count, in[1].dptr<A>());
    channels.ForEachChannel([&](int64_t c) {
      if (!batch) {
        mean[c] = moving_mean[c];
        invstd[c] = InvStd(moving_var[c]);
        return;
      }
      const auto value = [=](int64_t at) { return static_cast<A>(x[at]); };
      const A center = SumsOf(c, [=](int64_t at) { return Two<A>{value(at), 0}; }).first / items;
      const auto square = SumsOf(c, [=](int64_t at) {
                            const A d = value(at) - center;
                            return Two<A>{d * d, 0};
                          }).first;
      mean[c] = center;
      invstd[c] = square == 0 && param.eps == 0.0 ? A(0) : InvStd(square / items);
    });
  }

  NormThenRelu<T> HowOf(int64_t c, const TBlob& gamma, const TBlob& beta, const TBlob& mean,
                        const TBlob& invstd) const {
    return {mean.dptr<A>()[c], invstd.dptr<A>()[c], param.fix_gamma ? A(1) : gamma.dptr<A>()[c],
            beta.dptr<A>()[c], nan_matters};
  }

  void Forward(const Blobs& in, const Blobs& statistics, OpReqType request,
               const TBlob& out) const {
    if (request == mxnet::kNullOp) return;
    const T* x = in[0].dptr<T>();
    T* y = out.dptr<T>();
    channels.ForEachChannel([&](int64_t c) {
      const auto how = HowOf(c, in[1], in[2], statistics[1], statistics[2]);
      channels.ForEachRun(c, [=](int64_t, int64_t place, int64_t length, auto step) {
#pragma omp simd
        for (int64_t i = 0; i < length; ++i) {
          const int64_t at = place + i * step;
          Store(y + at, request, how.Output(x[at]));
        }
      });
    });
  }

  // in: (unused) data gamma beta mean invstd moving_mean moving_var
  void Backward(bool batch, const Blobs& in, const TBlob& gradient, const Requests& request,
                const Blobs& out) const {
    const T *g = gradient.dptr<T>(), *x = in[1].dptr<T>();
    T* dx = out[0].dptr<T>();
    const size_t items = channels.Items();
    const OpReqType writes = request[0];
    channels.ForEachChannel([&](int64_t c) {
      const auto how = HowOf(c, in[2], in[3], in[4], in[5]);
      const A s = how.invstd;
      if (batch) {
        MoveAverages(how.mean, static_cast<A>(1.0 / (s * s) - param.eps), param.momentum,
                     in[6].dptr<A>() + c, in[7].dptr<A>() + c);
      }
      const Sums sums = SumsOf(c, [=](int64_t at) {
        const T dz = how.Gate(x[at], g[at]);
        return Two<A>{static_cast<A>(dz), static_cast<A>(T((x[at] - how.mean) * dz))};
      });
      const auto sum = sums.first, dot = sums.second;
      StoreParameters(param.fix_gamma, request, sum, dot * s, out[1].dptr<A>() + c,
                      out[2].dptr<A>() + c);
      if (writes == mxnet::kNullOp) return;
      // Of given statistics x counts nothing, whatever it is.
      const A scale = s * how.gamma, shift = batch ? A(sum / items) : A(0);
      const A slope = batch ? A(dot * s * s / items) : A(0);
      channels.ForEachRun(c, [=](int64_t, int64_t place, int64_t length, auto step) {
#pragma omp simd
        for (int64_t i = 0; i < length; ++i) {
          const int64_t at = place + i * step;
          const T part = batch ? T((x[at] - how.mean) * slope) : T(0.0f);
          Store(dx + at, writes, T((how.Gate(x[at], g[at]) - shift - part) * scale));
        }
      });
    });
  }
};

constexpr const char* kName = "memonger_batch_norm_relu";

// work(norm) for the dtype of the data.
template <class Work>
void WithNorm(const BatchNormParam& param, const TBlob& data, Work work) {
  if (MkldnnActivates(data)) return work(NormRelu<float, InAnyOrder>(param, data));
  MEMONGER_REAL_SWITCH(data.type_flag_, kName, T, work(NormRelu<T, InOrder>(param, data));)
}

void Parse(NodeAttrs* attrs) {
  ParseParam<BatchNormParam>(attrs);
  nnvm::get<BatchNormParam>(attrs->parsed).stock = StockNormOf(attrs->name, attrs->dict);
}

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
  WithNorm(param, in[0], [&](auto norm) { norm.Prepare(batch, in, statistics); });
}

void NormReluForward(const BatchNormParam& param, const Blobs& in, const Blobs& statistics,
                     OpReqType request, const TBlob& out) {
  WithNorm(param, in[0], [&](auto norm) { norm.Forward(in, statistics, request, out); });
}

void NormReluBackward(const BatchNormParam& param, bool batch, const Blobs& in,
                      const TBlob& gradient, const Requests& request, const Blobs& out) {
  WithNorm(param, in[1], [&](auto norm) { norm.Backward(batch, in, gradient, request, out); });
}

void RegisterBatchNormRelu() {
  RegisterNorm(kName, "BatchNorm followed by ReLU, keeping BatchNorm's input and no output.")
      .Outputs(3)
      .TempSpace()
      .Parser(Parse)
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
      .Parser(Parse)
      .IsBackward()
      .TempSpace()
      .Changes({6, 7})
      .InplaceFirst()
      .Compute(Backward);
}

}  // namespace ops
}  // namespace memonger
