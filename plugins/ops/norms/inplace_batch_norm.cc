/*
 * memonger_inplace_batch_norm: BatchNorm with an invertible activation behind it, keeping its
 * output alone (In-Place Activated BatchNorm, Rota Bulo et al., CVPR 2018).
 *
 * Backward rebuilds x-hat from the output: through the activation's inverse (identity or leaky
 * ReLU), then (z - beta) / gamma. The input is not kept, and the output may take its memory.
 *
 * Channels with a gamma near zero keep x-hat in `spare` (spare.h, attribute spare_channels).
 * Sums are made in double, so errors are smaller than those of MXNet's float32 operator.
 */
#include <cmath>

#include "ops/norms/batch_norm.h"
#include "ops/norms/spare.h"
#include "ops/register.h"

namespace memonger {
namespace ops {

namespace {

const InplaceBatchNormParam& ParamOf(const NodeAttrs& attrs) {
  return nnvm::get<InplaceBatchNormParam>(attrs.parsed);
}

void Parse(NodeAttrs* attrs) {
  ParseParam<InplaceBatchNormParam>(attrs);
  if (ParamOf(*attrs).act_type != kIdentity && !(ParamOf(*attrs).slope > 0)) {
    RefuseAttribute(Words() << "slope must be above zero, not " << ParamOf(*attrs).slope);
  }
}

bool Shape(const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
  const auto& param = ParamOf(attrs);
  if (!BatchNormShape(attrs, param.axis, in, out)) return false;
  const Channels channels((*in)[0], param.axis);
  (*out)[3] = Flat(std::max<int64_t>(1, Spares(param, channels.count) * channels.Items()));
  return true;
}

bool Type(const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
  if (!BatchNormType(attrs, in, out)) return false;
  (*out)[3] = (*out)[0];
  return true;
}

template <class A>
std::vector<int64_t> PlacesOf(const NodeAttrs& attrs, const TBlob& spare, int64_t count,
                              const A* gamma, const A* beta) {
  const auto& param = ParamOf(attrs);
  if (param.fix_gamma) return std::vector<int64_t>(count, -1);
  return SparePlaces(attrs, spare, Spares(param, count), count, gamma, beta);
}

// Sums are made in double, in any order.
template <class T>
double MeanOf(const Channels& channels, int64_t c, const T* x) {
  double all = 0, *const total = &all;
  channels.ForEachRun(c, [=](int64_t, int64_t at, int64_t length, auto step) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < length; ++i) sum += static_cast<Acc<T>>(x[at + i * step]);
    *total += sum;
  });
  return all / channels.Items();
}

template <class T>
double VarianceOf(const Channels& channels, int64_t c, const T* x, double mean) {
  double all = 0, *const total = &all;
  channels.ForEachRun(c, [=](int64_t, int64_t at, int64_t length, auto step) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < length; ++i) {
      const double d = static_cast<Acc<T>>(x[at + i * step]) - mean;
      sum += d * d;
    }
    *total += sum;
  });
  return all / channels.Items();
}

template <class T>
void InplaceForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                    const Requests& request, const Blobs& out) {
  using A = Acc<T>;
  const auto& param = ParamOf(attrs);
  const Channels channels(in[0].shape_, param.axis);
  const bool batch = context.is_train && !param.use_global_stats;
  const T* x = in[0].dptr<T>();
  A *gamma = in[1].dptr<A>(), *mean = out[1].dptr<A>(), *invstd = out[2].dptr<A>();
  const A *beta = in[2].dptr<A>(), *moving_mean = in[3].dptr<A>(), *moving_var = in[4].dptr<A>();
  T *y = out[0].dptr<T>(), *spare = out[3].dptr<T>();
  FixGamma(param.fix_gamma, channels.count, gamma);
  const auto place = context.is_train || context.need_grad
                         ? PlacesOf(attrs, out[3], channels.count, gamma, beta)
                         : std::vector<int64_t>(channels.count, -1);
  const int64_t items = channels.Items();
  const double slope = param.act_type == kLeaky ? param.slope : 1.0;
  const OpReqType how = request[0];
  channels.ForEachChannel([&](int64_t c) {
    const double center = batch ? MeanOf(channels, c, x) : moving_mean[c];
    const double variance = batch ? VarianceOf(channels, c, x, center) : moving_var[c];
    // NaN stays NaN, here and below: a comparison with it is false.
    const double positive = variance + param.eps, inv = positive <= 0 ? 0 : 1 / std::sqrt(positive);
    mean[c] = static_cast<A>(center);
    invstd[c] = static_cast<A>(inv);
    T* const kept = place[c] >= 0 ? spare + place[c] * items : nullptr;
    const double scale = inv * gamma[c], shift = beta[c];
    channels.ForEachRun(c, [=](int64_t first, int64_t at, int64_t length, auto step) {
      for (int64_t i = 0; kept && i < length; ++i) {
        const double hat = (static_cast<A>(x[at + i * step]) - center) * inv;
        kept[first + i] = static_cast<T>(static_cast<A>(hat));
      }
#pragma omp simd
      for (int64_t i = 0; i < length; ++i) {
        const double z = (static_cast<A>(x[at + i * step]) - center) * scale + shift;
        Store(y + at + i * step, how, static_cast<A>(z > 0.0 ? z : z * slope));
      }
    });
  });
}

// in: gradient output gamma beta mean invstd spare moving_mean moving_var
template <class T>
void InplaceBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                     const Requests& request, const Blobs& out) {
  using A = Acc<T>;
  const auto& param = ParamOf(attrs);
  const Channels channels(in[1].shape_, param.axis);
  const bool batch = context.is_train && !param.use_global_stats;
  const T *gradient = in[0].dptr<T>(), *output = in[1].dptr<T>(), *spare = in[6].dptr<T>();
  const A *gamma = in[2].dptr<A>(), *beta = in[3].dptr<A>();
  const A *mean = in[4].dptr<A>(), *invstd = in[5].dptr<A>();
  T* dx = out[0].dptr<T>();
  const auto place = PlacesOf(attrs, in[6], channels.count, gamma, beta);
  const int64_t items = channels.Items();
  const A slope = param.act_type == kLeaky ? static_cast<A>(param.slope) : A(1);
  const OpReqType how = request[0];
  channels.ForEachChannel([&](int64_t c) {
    const double scale = param.fix_gamma ? 1.0 : static_cast<double>(gamma[c]);
    const bool spared = place[c] >= 0;
    const T* const kept = spared ? spare + place[c] * items : nullptr;
    // x-hat: (y behind the activation's inverse - minus) * inverse, of a channel that is spared as
    // it was kept.
    const A steep = spared ? A(1) : A(1) / slope, minus = spared ? A(0) : beta[c];
    const A inverse = spared ? A(1) : static_cast<A>(1.0 / scale);
    // Of element i of a run; dz is the gradient of the normalised value. Without a choice between
    // two addresses in it the loops become SIMD.
    const auto rebuilt = [=](int64_t first, int64_t at, auto step, int64_t i, A* dz, A* hat) {
      const T* const source = spared ? kept + first : output + at;
      const int64_t apart = spared ? 1 : step;
      const A y = static_cast<A>(output[at + i * step]);
      const A g = static_cast<A>(gradient[at + i * step]);
      const A from = static_cast<A>(source[i * apart]);
      *dz = g * (y > A(0) ? A(1) : slope);
      *hat = (from * (from > A(0) ? A(1) : steep) - minus) * inverse;
    };
    double sums[2] = {0, 0};
    double* const all = sums;
    channels.ForEachRun(c, [=](int64_t first, int64_t at, int64_t length, auto step) {
      double sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
      for (int64_t i = 0; i < length; ++i) {
        A dz, hat;
        rebuilt(first, at, step, i, &dz, &hat);
        sum += dz;
        dot += static_cast<double>(dz) * hat;
      }
      all[0] += sum;
      all[1] += dot;
    });
    if (how != mxnet::kNullOp) {
      const A factor = static_cast<A>(scale * invstd[c]);
      const A shift = batch ? static_cast<A>(sums[0] / items) : A(0);
      const A tilt = batch ? static_cast<A>(sums[1] / items) : A(0);
      channels.ForEachRun(c, [=](int64_t first, int64_t at, int64_t length, auto step) {
#pragma omp simd
        for (int64_t i = 0; i < length; ++i) {
          A dz, hat;
          rebuilt(first, at, step, i, &dz, &hat);
          Store(dx + at + i * step, how, factor * (dz - shift - hat * tilt));
        }
      });
    }
    StoreParameters(param.fix_gamma, request, sums[0], sums[1], out[1].dptr<A>() + c,
                    out[2].dptr<A>() + c);
    if (!batch) return;
    const double s = invstd[c], variance = s <= 0 ? 0.0 : 1.0 / (s * s) - param.eps;
    MoveAverages(mean[c], variance, param.momentum, in[7].dptr<A>() + c, in[8].dptr<A>() + c);
  });
}

MEMONGER_REAL_COMPUTE(Forward, InplaceForward, 0)
MEMONGER_REAL_COMPUTE(Backward, InplaceBackward, 1)

}  // namespace

void RegisterInplaceBatchNorm() {
  RegisterNorm("memonger_inplace_batch_norm",
               "BatchNorm with an invertible activation behind it (identity, leaky ReLU) "
               "that keeps its output alone: In-Place Activated BatchNorm.")
      .Outputs(4)
      .Parser(Parse)
      .InputNames({"data", "gamma", "beta", "moving_mean", "moving_var"})
      .OutputNames({"output", "mean", "invstd", "spare"})
      .InferShape(Shape)
      .InferType(Type)
      .InplaceFirst()
      .Compute(Forward)
      .Gradient(
          {Output(0), Input(1), Input(2), Output(1), Output(2), Output(3), Input(3), Input(4)}, 3)
      .Arguments(FieldsOf<InplaceBatchNormParam>());

  Operator("_backward_memonger_inplace_batch_norm")
      .Inputs(9)
      .Outputs(3)
      .Parser(Parse)
      .IsBackward()
      .Changes({7, 8})
      .InplaceFirst()
      .Compute(Backward);
}

}  // namespace ops
}  // namespace memonger
