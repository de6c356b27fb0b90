// Selections between numbers become SIMD only where comparisons may not trap; results are the same.
#pragma GCC optimize("no-trapping-math")
/*
 * memonger_inplace_batch_norm: BatchNorm with an invertible activation behind it, keeping its
 * output alone (In-Place Activated BatchNorm, Rota Bulo et al., CVPR 2018).
 *
 * Backward rebuilds x-hat from the output: through the activation's inverse (identity, leaky ReLU
 * or ELU), then (z - beta) / gamma. The input is not kept, and the output may take its memory.
 *
 * Channels with a gamma near zero keep x-hat in `spare` (spare.h, attribute spare_channels).
 * Sums are made in double, so errors are smaller than those of MXNet's float32 operator.
 */
#include "./batch_norm.h"
#include "./exponentials.h"
#include "./lanes.h"
#include "./register.h"
#include "./spare.h"

namespace memonger {
namespace ops {

namespace {

const InplaceBatchNormParam& ParamOf(const NodeAttrs& attrs) {
  return nnvm::get<InplaceBatchNormParam>(attrs.parsed);
}

void Parse(NodeAttrs* attrs) {
  ParseParam<InplaceBatchNormParam>(attrs);
  CHECK(ParamOf(*attrs).act_type == kIdentity || ParamOf(*attrs).slope > 0)
      << "memonger_inplace_batch_norm: slope must be above zero, not " << ParamOf(*attrs).slope;
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

// ------------------------------------------------------------------ ELU on pieces of a channel
// The same code for processors with AVX2 and without.
#if defined(__x86_64__) && defined(__GNUC__)
#define MEMONGER_INLINE inline __attribute__((always_inline))
#define MEMONGER_WITH_AVX2(NAME, PARAMETERS, ARGUMENTS)                                      \
  __attribute__((target("avx2"))) void NAME##Wide PARAMETERS { NAME##Body ARGUMENTS; }       \
  void NAME PARAMETERS {                                                                     \
    static const bool has_avx2 = __builtin_cpu_supports("avx2");                             \
    if (has_avx2) {                                                                          \
      NAME##Wide ARGUMENTS;                                                                  \
    } else {                                                                                 \
      NAME##Body ARGUMENTS;                                                                  \
    }                                                                                        \
  }
#else
#define MEMONGER_INLINE inline
#define MEMONGER_WITH_AVX2(NAME, PARAMETERS, ARGUMENTS) \
  void NAME PARAMETERS { NAME##Body ARGUMENTS; }
#endif

MEMONGER_INLINE void EluBody(double* __restrict z, int64_t length, double slope) {
  for (int64_t i = 0; i < length; ++i) {
    const double below = slope * ExpM1(z[i] > 0.0 ? 0.0 : z[i]);
    z[i] = z[i] > 0.0 ? z[i] : below;
  }
}
MEMONGER_WITH_AVX2(Elu, (double* __restrict z, int64_t length, double slope), (z, length, slope))

// What was behind the outputs `value`.
MEMONGER_INLINE void UndoEluBody(const double* __restrict value, int64_t length, double slope,
                                 double* __restrict z) {
  const double inverse = 1.0 / slope;
  for (int64_t i = 0; i < length; ++i) {
    const double log = Log1P((value[i] > 0.0 ? 0.0 : value[i]) * inverse);
    const double low = log < -40.0 ? -40.0 : log;  // below, the output has lost its input
    z[i] = value[i] > 0.0 ? value[i] : low;
  }
}
MEMONGER_WITH_AVX2(UndoElu, (const double* __restrict value, int64_t length, double slope,
                             double* __restrict z), (value, length, slope, z))

template <class A>
std::vector<int64_t> PlacesOf(const NodeAttrs& attrs, int64_t count, const A* gamma,
                              const A* beta) {
  const auto& param = ParamOf(attrs);
  if (param.fix_gamma) return std::vector<int64_t>(count, -1);
  return SparePlaces(attrs.name, Spares(param, count), count, gamma, beta);
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
  if (param.fix_gamma) std::fill(gamma, gamma + channels.count, A(1));  // as MXNet does
  const auto place = context.is_train || context.need_grad
      ? PlacesOf(attrs, channels.count, gamma, beta)
      : std::vector<int64_t>(channels.count, -1);
  const double items = static_cast<double>(channels.Items());
  const int act = param.act_type;
  const double slope = param.slope, below = act == kLeaky ? slope : 1.0;
  const OpReqType how = request[0];
#pragma omp parallel for if (channels.Size() >= kParallelFrom)
  for (int64_t c = 0; c < channels.count; ++c) {
    double center = 0, spread = 0;
    if (batch) {
      channels.Pieces(c, [&](int64_t offset, auto step, int64_t length) {
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < length; ++i) sum += static_cast<A>(x[offset + i * step]);
        center += sum;
      });
      center /= items;
      channels.Pieces(c, [&](int64_t offset, auto step, int64_t length) {
        double sum = 0;
        const double m = center;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < length; ++i) {
          const double d = static_cast<A>(x[offset + i * step]) - m;
          sum += d * d;
        }
        spread += sum;
      });
      spread /= items;
    } else {
      center = moving_mean[c];
      spread = moving_var[c];
    }
    const double inv = spread + param.eps > 0 ? 1.0 / std::sqrt(spread + param.eps) : 0.0;
    mean[c] = static_cast<A>(center);
    invstd[c] = static_cast<A>(inv);
    const double scale = inv * gamma[c], shift = beta[c];
    T* keep = place[c] >= 0 ? spare + place[c] * channels.Items() : nullptr;
    channels.Pieces(c, [&](int64_t offset, auto step, int64_t length) {
      A z[Channels::kPiece];
      const double m = center, scale_ = scale, shift_ = shift, below_ = below, inv_ = inv;
      if (keep) {
        for (int64_t i = 0; i < length; ++i) {
          *keep++ = static_cast<T>(static_cast<A>((static_cast<A>(x[offset + i * step]) - m) * inv_));
        }
      }
      for (int64_t i = 0; i < length; ++i) {
        const double value = (static_cast<A>(x[offset + i * step]) - m) * scale_ + shift_;
        // Selections that are max and min instructions; a branch on a sign is mostly mispredicted.
        const double positive = value > 0.0 ? value : 0.0, negative = 0.0 < value ? 0.0 : value;
        z[i] = static_cast<A>(positive + negative * below_);
      }
      if (act == kElu) {
        double wide[Channels::kPiece];
        for (int64_t i = 0; i < length; ++i) wide[i] = z[i];
        Elu(wide, length, slope);
        for (int64_t i = 0; i < length; ++i) z[i] = static_cast<A>(wide[i]);
      }
      if (how == mxnet::kAddTo) {
        for (int64_t i = 0; i < length; ++i) y[offset + i * step] += static_cast<T>(z[i]);
      } else if (how != mxnet::kNullOp) {
        for (int64_t i = 0; i < length; ++i) y[offset + i * step] = static_cast<T>(z[i]);
      }
    });
  }
}

// in: gradient output gamma beta mean invstd spare moving_mean moving_var
template <class T>
void InplaceBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                     const Requests& request, const Blobs& out) {
  using A = Acc<T>;
  const auto& param = ParamOf(attrs);
  const Channels channels(in[1].shape_, param.axis);
  const bool batch = context.is_train && !param.use_global_stats;
  const T *gradient = in[0].dptr<T>(), *y = in[1].dptr<T>(), *spare = in[6].dptr<T>();
  const A *gamma = in[2].dptr<A>(), *beta = in[3].dptr<A>();
  const A *mean = in[4].dptr<A>(), *invstd = in[5].dptr<A>();
  A *moving_mean = in[7].dptr<A>(), *moving_var = in[8].dptr<A>();
  T* dx = out[0].dptr<T>();
  A *dgamma = out[1].dptr<A>(), *dbeta = out[2].dptr<A>();
  const auto place = PlacesOf(attrs, channels.count, gamma, beta);
  const double items = static_cast<double>(channels.Items());
  const int act = param.act_type;
  const double slope = param.slope, below = act == kLeaky ? slope : 1.0, above = 1.0 / below;
#pragma omp parallel for if (channels.Size() >= kParallelFrom)
  for (int64_t c = 0; c < channels.count; ++c) {
    const double scale = param.fix_gamma ? 1.0 : static_cast<double>(gamma[c]);
    const double shift = beta[c], inverse = place[c] >= 0 ? 0.0 : 1.0 / scale;
    // The gradient of the normalised value and x-hat of a piece; `kept` follows along.
    // Captured by value: what is reached through references could be what the loops write.
    const auto rebuild = [=](int64_t offset, auto step, int64_t length, const T** kept,
                             const A** cached, double* __restrict dz, double* __restrict hat) {
      if (act == kElu) {
        double value[Channels::kPiece];
        for (int64_t i = 0; i < length; ++i) {
          value[i] = static_cast<A>(y[offset + i * step]);
          dz[i] = static_cast<A>(gradient[offset + i * step]);
          dz[i] *= value[i] > 0.0 ? 1.0 : value[i] + slope;
        }
        if (*kept == nullptr && *cached == nullptr) {
          UndoElu(value, length, slope, hat);
          for (int64_t i = 0; i < length; ++i) hat[i] = (hat[i] - shift) * inverse;
        }
      } else {
        using L = Lanes<double>;
        double value[Channels::kPiece];
        for (int64_t i = 0; i < length; ++i) {
          value[i] = static_cast<A>(y[offset + i * step]);
          dz[i] = static_cast<A>(gradient[offset + i * step]);
        }
        int64_t i = 0;
        for (; i + L::kWidth <= length; i += L::kWidth) {
          const auto open = L::Above(L::Load(value + i), L::All(0.0));
          L::Put(dz + i, L::Mul(L::Load(dz + i), L::Pick(open, L::All(1.0), L::All(below))));
        }
        for (; i < length; ++i) dz[i] *= value[i] > 0.0 ? 1.0 : below;
        for (i = 0; i < length; ++i) {
          const double positive = value[i] > 0.0 ? value[i] : 0.0;
          const double negative = 0.0 < value[i] ? 0.0 : value[i];
          hat[i] = (positive + negative * above - shift) * inverse;
        }
      }
      if (*kept) {
        for (int64_t i = 0; i < length; ++i) hat[i] = static_cast<A>((*kept)[i]);
        *kept += length;
      } else if (*cached) {
        for (int64_t i = 0; i < length; ++i) hat[i] = (*cached)[i];
        *cached += length;
      }
    };
    const T* const kept = place[c] >= 0 ? spare + place[c] * channels.Items() : nullptr;
    double dz[Channels::kPiece], hat[Channels::kPiece], sum = 0, dot = 0;
    const T* next = kept;
    const A* from_cache = nullptr;
    // Logarithms are taken once: the second walk over the channel finds x-hat here.
    static thread_local std::vector<A> cache;
    if (act == kElu) cache.resize(channels.Items());
    A* to_cache = act == kElu ? cache.data() : nullptr;
    channels.Pieces(c, [&](int64_t offset, auto step, int64_t length) {
      rebuild(offset, step, length, &next, &from_cache, dz, hat);
      if (to_cache) {
        for (int64_t i = 0; i < length; ++i) to_cache[i] = static_cast<A>(hat[i]);
        to_cache += length;
      }
      double s = 0, d = 0;
#pragma omp simd reduction(+ : s, d)
      for (int64_t i = 0; i < length; ++i) {
        s += dz[i];
        d += dz[i] * hat[i];
      }
      sum += s;
      dot += d;
    });
    const double factor = scale * invstd[c];
    const double p = batch ? sum / items : 0, q = batch ? dot / items : 0;
    next = kept;
    if (act == kElu) from_cache = cache.data();
    if (request[0] != mxnet::kNullOp) {
      channels.Pieces(c, [&](int64_t offset, auto step, int64_t length) {
        rebuild(offset, step, length, &next, &from_cache, dz, hat);
        A value[Channels::kPiece];
        const double f = factor, p_ = p, q_ = q;
        for (int64_t i = 0; i < length; ++i) {
          value[i] = static_cast<A>(f * (dz[i] - p_ - hat[i] * q_));
        }
        if (request[0] == mxnet::kAddTo) {
          for (int64_t i = 0; i < length; ++i) dx[offset + i * step] += static_cast<T>(value[i]);
        } else {
          for (int64_t i = 0; i < length; ++i) dx[offset + i * step] = static_cast<T>(value[i]);
        }
      });
    }
    if (!param.fix_gamma) {
      Store(dgamma + c, request[1], static_cast<A>(dot));
    } else if (request[1] != mxnet::kAddTo && request[1] != mxnet::kNullOp) {
      dgamma[c] = 0;
    }
    Store(dbeta + c, request[2], static_cast<A>(sum));
    if (batch) {
      const double s = invstd[c], variance = s > 0 ? 1.0 / (s * s) - param.eps : 0.0;
      moving_mean[c] = moving_mean[c] * param.momentum + mean[c] * (A(1) - param.momentum);
      moving_var[c] = static_cast<A>(moving_var[c] * param.momentum +
                                     variance * (A(1) - param.momentum));
    }
  }
}

MEMONGER_REAL_COMPUTE(Forward, InplaceForward, 0)
MEMONGER_REAL_COMPUTE(Backward, InplaceBackward, 1)

}  // namespace

void RegisterInplaceBatchNorm() {
  RegisterNorm("memonger_inplace_batch_norm",
               "BatchNorm with an invertible activation behind it (identity, leaky ReLU, ELU) "
               "that keeps its output alone: In-Place Activated BatchNorm.")
      .Outputs(4)
      .Parser(Parse)
      .InputNames({"data", "gamma", "beta", "moving_mean", "moving_var"})
      .OutputNames({"output", "mean", "invstd", "spare"})
      .InferShape(Shape)
      .InferType(Type)
      .InplaceFirst()
      .Compute(Forward)
      .Gradient({Output(0), Input(1), Input(2), Output(1), Output(2), Output(3), Input(3),
                 Input(4)}, 3)
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
