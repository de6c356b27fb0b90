/*
 * Batch normalisation bit for bit as MXNet's CPU operator computes it (without MKLDNN).
 *
 * The order of summation, the places where double and float meet, and the rounding of
 * intermediates to the data's dtype are MXNet's; only several channels are worked on at once.
 * Statistics and parameters are float32 for float16 data, as in MXNet. "invstd" is
 * 1 / sqrt(variance + eps).
 */
#ifndef MEMONGER_OPS_BATCH_NORM_H_
#define MEMONGER_OPS_BATCH_NORM_H_

#include <cmath>
#include <vector>

#include "./channels.h"
#include "./operator.h"
#include "./params.h"

namespace memonger {
namespace ops {

// Places of the moving averages among the inputs.
inline std::vector<uint32_t> MovingAverages() { return {3, 4}; }

// Inputs: data gamma beta moving_mean moving_var. Outputs: output, mean, invstd, ...
bool BatchNormShape(const NodeAttrs& attrs, int axis, ShapeVector* in, ShapeVector* out);
bool BatchNormType(const NodeAttrs& attrs, TypeVector* in, TypeVector* out);

// What operators with a BatchNorm in front have in common: their first five inputs, the moving
// averages, which they change, and one visible output.
Operator RegisterNorm(const char* name, const char* text);

template <class T>
struct BatchNorm {
  using A = Acc<T>;
  const Channels channels;
  const double eps;
  const float momentum;
  const bool fix_gamma;

  BatchNorm(const TShape& shape, int axis, double e, float m, bool fixed)
      : channels(shape, axis), eps(e), momentum(m), fix_gamma(fixed) {}

  A InvStd(A variance) const {
    return static_cast<A>(1.0 / std::sqrt(variance + T(eps)));  // a half's sum is a half
  }

  template <int G>
  void BatchStatistics(const T* x, int64_t first, A* mean, A* invstd) const {
    const size_t items = channels.Items();
    A sum[G] = {}, square[G] = {}, terms[G][Channels::kPiece];
    channels.Pieces(first, [&](int64_t offset, auto step, int64_t length) {
      for (int g = 0; g < G; ++g) {
        const T* from = x + offset + g * channels.inner;
        for (int64_t i = 0; i < length; ++i) terms[g][i] = from[i * step];
      }
      SumInOrder(terms, length, sum);
    });
    for (int g = 0; g < G; ++g) mean[g] = sum[g] / items;
    channels.Pieces(first, [&](int64_t offset, auto step, int64_t length) {
      for (int g = 0; g < G; ++g) {
        const T* from = x + offset + g * channels.inner;
        const A center = mean[g];
        for (int64_t i = 0; i < length; ++i) {
          const A value = from[i * step];
          terms[g][i] = (value - center) * (value - center);
        }
      }
      SumInOrder(terms, length, square);
    });
    for (int g = 0; g < G; ++g) {
      invstd[g] = square[g] == 0 && eps == 0.0 ? A(0) : InvStd(square[g] / items);
    }
  }

  // Mean and invstd of all channels, from the batch or from the moving averages.
  void Statistics(bool batch, const T* x, const A* moving_mean, const A* moving_var, A* mean,
                  A* invstd) const {
    channels.ForEachGroup([&](auto group, int64_t first) {
      constexpr int G = decltype(group)::value;
      if (batch) return BatchStatistics<G>(x, first, mean + first, invstd + first);
      for (int64_t c = first; c < first + G; ++c) {
        mean[c] = moving_mean[c];
        invstd[c] = InvStd(moving_var[c]);
      }
    });
  }

  // (x - mean) * invstd * gamma + beta, rounded as MXNet does.
  T Normalised(T x, A mean, A invstd, A gamma, A beta) const {
    return fix_gamma ? static_cast<T>(((x - mean) * invstd) + beta)
                     : static_cast<T>(((x - mean) * invstd) * gamma + beta);
  }

  // use(offset, normalised value) for every element.
  template <class Use>
  void Normalise(const T* x, const A* mean, const A* invstd, const A* gamma, const A* beta,
                 Use use) const {
    channels.ForEachGroup([&](auto group, int64_t first) {
      constexpr int G = decltype(group)::value;
      for (int64_t c = first; c < first + G; ++c) {
        const A m = mean[c], s = invstd[c], w = gamma[c], b = beta[c];
        channels.Pieces(c, [&](int64_t offset, auto step, int64_t length) {
          if (fix_gamma) {
            for (int64_t i = 0; i < length; ++i) {
              const int64_t at = offset + i * step;
              use(at, static_cast<T>(((x[at] - m) * s) + b));
            }
          } else {
            for (int64_t i = 0; i < length; ++i) {
              const int64_t at = offset + i * step;
              use(at, static_cast<T>(((x[at] - m) * s) * w + b));
            }
          }
        });
      }
    });
  }

  // As MXNet does on a CPU: in backward, from the saved invstd.
  void UpdateMoving(const A* mean, const A* invstd, A* moving_mean, A* moving_var) const {
    for (int64_t c = 0; c < channels.count; ++c) {
      const A variance = static_cast<A>((1.0 / (invstd[c] * invstd[c])) - eps);
      moving_mean[c] = moving_mean[c] * momentum + mean[c] * (A(1) - momentum);
      moving_var[c] = moving_var[c] * momentum + variance * (A(1) - momentum);
    }
  }

  void StoreParameters(const Requests& request, A of_beta, A of_gamma, A* dgamma, A* dbeta) const {
    if (!fix_gamma) {
      Store(dgamma, request[1], of_gamma);
    } else if (request[1] != mxnet::kNullOp && request[1] != mxnet::kAddTo) {
      *dgamma = 0;
    }
    Store(dbeta, request[2], of_beta);
  }

  // Gradients of data, gamma and beta. gradients(channel, offset, step, length, to) writes those
  // of normalised values; dx may be the memory that it reads.
  template <class Gradients>
  void Backward(bool batch, const T* x, const A* mean, const A* invstd, const A* gamma,
                const Requests& request, Gradients gradients, T* dx, A* dgamma, A* dbeta) const {
    const size_t items = channels.Items();
    channels.ForEachGroup([&](auto group, int64_t first) {
      constexpr int G = decltype(group)::value;
      A sum[G] = {}, dot[G] = {}, terms[G][Channels::kPiece], products[G][Channels::kPiece];
      T gradient[Channels::kPiece];
      channels.Pieces(first, [&](int64_t offset, auto step, int64_t length) {
        for (int g = 0; g < G; ++g) {
          const int64_t base = offset + g * channels.inner;
          const A center = mean[first + g];
          gradients(first + g, base, step, length, gradient);
          for (int64_t i = 0; i < length; ++i) {
            terms[g][i] = gradient[i];
            products[g][i] = (x[base + i * step] - center) * gradient[i];
          }
        }
        SumInOrder(terms, length, sum);
        SumInOrder(products, length, dot);
      });
      for (int g = 0; g < G; ++g) {
        const int64_t c = first + g;
        StoreParameters(request, sum[g], dot[g] * invstd[c], dgamma + c, dbeta + c);
        if (request[0] == mxnet::kNullOp) continue;
        const A s = invstd[c], scale = s * (fix_gamma ? A(1) : gamma[c]), m = mean[c];
        const A k = dot[g] * s * s / items, shift = sum[g] / items;
        A value[Channels::kPiece];
        channels.Pieces(c, [&](int64_t offset, auto step, int64_t length) {
          gradients(c, offset, step, length, gradient);
          if (batch) {
            for (int64_t i = 0; i < length; ++i) {
              const T part = static_cast<T>((x[offset + i * step] - m) * k);
              value[i] = (gradient[i] - shift - part) * scale;
            }
          } else {
            for (int64_t i = 0; i < length; ++i) value[i] = gradient[i] * scale;
          }
          if (request[0] == mxnet::kAddTo) {
            for (int64_t i = 0; i < length; ++i) dx[offset + i * step] += value[i];
          } else {
            for (int64_t i = 0; i < length; ++i) dx[offset + i * step] = static_cast<T>(value[i]);
          }
        });
      }
    });
  }
};

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_BATCH_NORM_H_
