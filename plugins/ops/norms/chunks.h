/*
 * Loops of BatchNorm over short chunks of float or double data: plain, compiled for AVX2 as well
 * (vectors.h).
 */
#ifndef MEMONGER_OPS_NORMS_CHUNKS_H_
#define MEMONGER_OPS_NORMS_CHUNKS_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/frame/vectors.h"

namespace memonger {
namespace ops {

// BatchNorm's backward: how x-hat comes from an output y = activation(gamma * x-hat + beta).
template <class A>
struct Inverse {
  A slope;  // of the leaky ReLU, 1: identity
  A beta;
  A inverse;  // 1 / gamma
};

// How BatchNorm and ReLU make an output of an input x.
template <class A>
struct NormThenRelu {
  A mean, invstd, gamma, beta;
  bool nan_matters;       // ReLU's output and gradient are NaN at NaN
  bool of_batch = false;  // mean and invstd follow from x, which gradients count
};

// ------------------------------------------------------------------ an invertible activation
// dz = g * activation'(.)
template <class A>
void GateLeaky(const A* y, const A* g, int64_t length, A slope, A* dz) {
  Vectorised([=] {
#pragma omp simd
    for (int64_t i = 0; i < length; ++i) dz[i] = g[i] * (y[i] > A(0) ? A(1) : slope);
  });
}

// dz, and hat = x-hat.
template <class A>
void UndoLeaky(const A* y, const A* g, int64_t length, const Inverse<A>& how, A* dz, A* hat) {
  Vectorised([=] {
    const A slope = how.slope, steep = A(1) / slope, beta = how.beta, inverse = how.inverse;
#pragma omp simd
    for (int64_t i = 0; i < length; ++i) {
      dz[i] = g[i] * (y[i] > A(0) ? A(1) : slope);
      hat[i] = (y[i] * (y[i] > A(0) ? A(1) : steep) - beta) * inverse;
    }
  });
}

// ------------------------------------------------------------------ sums and statistics
// sums[0] += sum of dz, sums[1] += sum of dz * hat
template <class A>
void AddSums(const A* dz, const A* hat, int64_t length, double* sums) {
  Vectorised([=] {
    double sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t i = 0; i < length; ++i) {
      sum += dz[i];
      dot += static_cast<double>(dz[i]) * hat[i];
    }
    sums[0] += sum;
    sums[1] += dot;
  });
}

// *sum += sum of x
template <class A>
void AddValues(const A* x, int64_t length, double* sum) {
  Vectorised([=] {
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < length; ++i) total += x[i];
    *sum += total;
  });
}

// *sum += sum of (x - mean)^2
template <class A>
void AddSquares(const A* x, int64_t length, double mean, double* sum) {
  Vectorised([=] {
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < length; ++i) total += (x[i] - mean) * (x[i] - mean);
    *sum += total;
  });
}

// to = (x - mean)^2
template <class A>
void Squares(const A* x, int64_t length, A mean, A* to) {
  Vectorised([=] {
#pragma omp simd
    for (int64_t i = 0; i < length; ++i) to[i] = (x[i] - mean) * (x[i] - mean);
  });
}

// ------------------------------------------------------------------ in-place BatchNorm
// z = leaky((x - mean) * scale + shift), the identity for a slope of 1; z may be x
template <class A>
void ScaleLeaky(const A* x, int64_t length, double mean, double scale, double shift, double slope,
                A* z) {
  Vectorised([=] {
#pragma omp simd
    for (int64_t i = 0; i < length; ++i) {
      const double value = (x[i] - mean) * scale + shift;
      z[i] = static_cast<A>(value > 0.0 ? value : value * slope);
    }
  });
}

// to = factor * (dz - mean - hat * slope)
template <class A>
void Combine(const A* dz, const A* hat, int64_t length, A factor, A mean, A slope, A* to) {
  Vectorised([=] {
#pragma omp simd
    for (int64_t i = 0; i < length; ++i) to[i] = factor * (dz[i] - mean - hat[i] * slope);
  });
}

// ------------------------------------------------------------------ BatchNorm and ReLU
// Products and sums are not fused: ReLU's mask depends on a sign that backward finds again, and
// MXNet rounds both.
template <class A>
inline A Normalised(A x, const NormThenRelu<A>& how) {
  return ((x - how.mean) * how.invstd) * how.gamma + how.beta;
}

// What ReLU's gradient multiplies with.
template <class A>
inline A ReluGate(A x, const NormThenRelu<A>& how) {
  const A z = Normalised(x, how);
  const A at_nan = how.nan_matters ? std::numeric_limits<A>::quiet_NaN() : A(0);
  const A closed = z == z ? A(0) : at_nan;
  return z > A(0) ? A(1) : closed;
}

// y = relu(z), z the normalised x; y may be x
template <class A>
void NormReluOutput(const A* x, int64_t length, NormThenRelu<A> how, A* y) {
  Vectorised([=] {
    const bool nan_matters = how.nan_matters;
#pragma omp simd
    for (int64_t i = 0; i < length; ++i) {
      const A z = Normalised(x[i], how);
      const A positive = z > A(0) ? z : A(0), not_negative = z <= A(0) ? A(0) : z;
      y[i] = nan_matters ? not_negative : positive;
    }
  });
}

// dz, the gradient g behind ReLU, and products = (x - mean) * dz
template <class A>
void ReluTerms(const A* x, const A* g, int64_t length, NormThenRelu<A> how, A* dz, A* products) {
  Vectorised([=] {
#pragma omp simd
    for (int64_t i = 0; i < length; ++i) {
      dz[i] = g[i] * ReluGate(x[i], how);
      products[i] = (x[i] - how.mean) * dz[i];
    }
  });
}

// sums[0] += sum of dz, sums[1] += sum of dz * (x - mean)
inline void AddReluSums(const float* x, const float* g, int64_t length, NormThenRelu<float> how,
                        double* sums) {
  Vectorised([=] {
    double of_dz = 0, of_products = 0;
#pragma omp simd reduction(+ : of_dz, of_products)
    for (int64_t i = 0; i < length; ++i) {
      const float dz = g[i] * ReluGate(x[i], how);
      of_dz += dz;
      of_products += static_cast<double>(x[i] - how.mean) * dz;
    }
    sums[0] += of_dz;
    sums[1] += of_products;
  });
}

// to = (dz - shift - (x - mean) * slope) * scale; of given statistics slope and shift are 0 and x
// counts nothing, whatever it is. `to` may be g.
template <class A>
void ReluGradient(const A* x, const A* g, int64_t length, NormThenRelu<A> how, A shift, A slope,
                  A scale, A* to) {
  Vectorised([=] {
    if (!how.of_batch) {
#pragma omp simd
      for (int64_t i = 0; i < length; ++i) to[i] = (g[i] * ReluGate(x[i], how) - shift) * scale;
      return;
    }
#pragma omp simd
    for (int64_t i = 0; i < length; ++i) {
      const A dz = g[i] * ReluGate(x[i], how);
      to[i] = (dz - shift - (x[i] - how.mean) * slope) * scale;
    }
  });
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_NORMS_CHUNKS_H_
