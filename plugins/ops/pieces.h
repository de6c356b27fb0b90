/*
 * Loops over short pieces of data, for float and double, with AVX2 where there is.
 *
 * Without MXNet's headers: compiled once for all operators.
 */
#ifndef MEMONGER_OPS_PIECES_H_
#define MEMONGER_OPS_PIECES_H_

#include <cstdint>

namespace memonger {
namespace ops {

// BatchNorm's backward: how x-hat comes from an output y = activation(gamma * x-hat + beta).
template <class A>
struct Inverse {
  A slope;    // of leaky or elu
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

#define MEMONGER_FOR_REALS(DECLARE) DECLARE(float) DECLARE(double)
#define MEMONGER_PIECES(A)                                                                     \
  /* z = elu(z) */                                                                             \
  void Elu(A* __restrict z, int64_t length, A slope);                                          \
  /* dz = g * activation'(.), hat = x-hat, for the leaky ReLU (slope 1: identity) and ELU */   \
  void UndoLeaky(const A* y, const A* g, int64_t length, const Inverse<A>& how,                \
                 A* __restrict dz, A* __restrict hat);                                         \
  void UndoElu(const A* y, const A* g, int64_t length, const Inverse<A>& how,                  \
               A* __restrict dz, A* __restrict hat);                                           \
  /* dz alone */                                                                               \
  void GateLeaky(const A* y, const A* g, int64_t length, A slope, A* __restrict dz);           \
  void GateElu(const A* y, const A* g, int64_t length, A slope, A* __restrict dz);             \
  /* sums[0] += sum of dz, sums[1] += sum of dz * hat */                                       \
  void AddSums(const A* dz, const A* hat, int64_t length, double* __restrict sums);            \
  /* to = factor * (dz - mean - hat * slope) */                                                \
  void Combine(const A* dz, const A* hat, int64_t length, A factor, A mean, A slope,           \
               A* __restrict to);                                                              \
  /* *sum += sum of x; *sum += sum of (x - mean)^2 */                                          \
  void AddValues(const A* x, int64_t length, double* sum);                                     \
  void AddSquares(const A* x, int64_t length, double mean, double* sum);                       \
  /* z = leaky((x - mean) * scale + shift), the identity for a slope of 1; z may be x */      \
  void ScaleLeaky(const A* x, int64_t length, double mean, double scale, double shift,         \
                  double slope, A* z);                                                         \
  /* to = (x - mean)^2 */                                                                      \
  void Squares(const A* x, int64_t length, A mean, A* __restrict to);                          \
  /* y = relu(z), z the normalised x; y may be x */                                            \
  void NormReluOutput(const A* x, int64_t length, const NormThenRelu<A>& how, A* y);           \
  /* dz, the gradient g behind ReLU, and products = (x - mean) * dz */                         \
  void ReluTerms(const A* x, const A* g, int64_t length, const NormThenRelu<A>& how,           \
                 A* __restrict dz, A* __restrict products);                                    \
  /* to = (dz - shift - (x - mean) * slope) * scale, of given statistics dz * scale, whatever */ \
  /* x is; `to` may be g */                                                                     \
  void ReluGradient(const A* x, const A* g, int64_t length, const NormThenRelu<A>& how,        \
                    A shift, A slope, A scale, A* to);
MEMONGER_FOR_REALS(MEMONGER_PIECES)
#undef MEMONGER_PIECES

// Sums in eight parts each: of dz, the gradient g behind ReLU, and of dz * (x - mean).
struct ReluSums {
  double dz[8] = {}, products[8] = {};
};
void AddReluSums(const float* x, const float* g, int64_t length, const NormThenRelu<float>& how,
                 ReluSums* sums);

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_PIECES_H_
