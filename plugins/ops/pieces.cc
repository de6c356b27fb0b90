// Selections between numbers become SIMD only where comparisons may not trap; results are the same.
#pragma GCC optimize("no-trapping-math")
#include "./pieces.h"

#include "./exponentials.h"
#include "./wide.h"

namespace memonger {
namespace ops {
namespace {

template <class A>
MEMONGER_INLINE void EluBody(A* __restrict z, int64_t length, A slope) {
  for (int64_t i = 0; i < length; ++i) {
    const A below = slope * ExpM1(z[i] > A(0) ? A(0) : z[i]);
    z[i] = z[i] > A(0) ? z[i] : below;
  }
}

template <class A>
MEMONGER_INLINE void GateLeakyBody(const A* y, const A* g, int64_t length, A slope,
                                   A* __restrict dz) {
  for (int64_t i = 0; i < length; ++i) dz[i] = g[i] * (y[i] > A(0) ? A(1) : slope);
}

template <class A>
MEMONGER_INLINE void GateEluBody(const A* y, const A* g, int64_t length, A slope,
                                 A* __restrict dz) {
  for (int64_t i = 0; i < length; ++i) dz[i] = g[i] * (y[i] > A(0) ? A(1) : y[i] + slope);
}

template <class A>
MEMONGER_INLINE void UndoLeakyBody(const A* y, const A* g, int64_t length, const Inverse<A>& how,
                                   A* __restrict dz, A* __restrict hat) {
  const A slope = how.slope, steep = A(1) / slope, beta = how.beta, inverse = how.inverse;
  for (int64_t i = 0; i < length; ++i) {
    dz[i] = g[i] * (y[i] > A(0) ? A(1) : slope);
    hat[i] = (y[i] * (y[i] > A(0) ? A(1) : steep) - beta) * inverse;
  }
}

template <class A>
MEMONGER_INLINE void UndoEluBody(const A* y, const A* g, int64_t length, const Inverse<A>& how,
                                 A* __restrict dz, A* __restrict hat) {
  const A slope = how.slope, steep = A(1) / slope, beta = how.beta, inverse = how.inverse;
  for (int64_t i = 0; i < length; ++i) {
    const A log = Log1P((y[i] > A(0) ? A(0) : y[i]) * steep);
    const A low = log < A(-40) ? A(-40) : log;  // below, the output has lost its input
    dz[i] = g[i] * (y[i] > A(0) ? A(1) : y[i] + slope);
    hat[i] = ((y[i] > A(0) ? y[i] : low) - beta) * inverse;
  }
}

template <class A>
MEMONGER_INLINE void AddSumsBody(const A* dz, const A* hat, int64_t length,
                                 double* __restrict sums) {
  double sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
  for (int64_t i = 0; i < length; ++i) {
    sum += dz[i];
    dot += static_cast<double>(dz[i]) * hat[i];
  }
  sums[0] += sum;
  sums[1] += dot;
}

template <class A>
MEMONGER_INLINE void CombineBody(const A* dz, const A* hat, int64_t length, A factor, A mean,
                                 A slope, A* __restrict to) {
  for (int64_t i = 0; i < length; ++i) to[i] = factor * (dz[i] - mean - hat[i] * slope);
}

template <class A>
MEMONGER_INLINE void AddValuesBody(const A* x, int64_t length, double* sum) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < length; ++i) total += x[i];
  *sum += total;
}

template <class A>
MEMONGER_INLINE void AddSquaresBody(const A* x, int64_t length, double mean, double* sum) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < length; ++i) total += (x[i] - mean) * (x[i] - mean);
  *sum += total;
}

template <class A>
MEMONGER_INLINE void ScaleLeakyBody(const A* x, int64_t length, double mean, double scale,
                                    double shift, double slope, A* z) {
  if (slope == 1.0) {
    // The last of a row are worked on with a mask: rows of 7x7 maps are three sixteens and one.
    const int64_t whole = length / 16 * 16;
#pragma omp simd
    for (int64_t i = 0; i < whole; ++i) z[i] = static_cast<A>((x[i] - mean) * scale + shift);
    if (whole == length) return;
#pragma omp simd
    for (int64_t i = whole; i < whole + 16; ++i) {
      if (i < length) z[i] = static_cast<A>((x[i] - mean) * scale + shift);
    }
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) {
    const double value = (x[i] - mean) * scale + shift;
    // Selections that are max and min instructions; a branch on a sign is mostly mispredicted.
    const double positive = value > 0.0 ? value : 0.0, negative = 0.0 < value ? 0.0 : value;
    z[i] = static_cast<A>(positive + negative * slope);
  }
}

template <class A>
MEMONGER_INLINE void SquaresBody(const A* x, int64_t length, A mean, A* __restrict to) {
  for (int64_t i = 0; i < length; ++i) to[i] = (x[i] - mean) * (x[i] - mean);
}

}  // namespace

#define MEMONGER_PIECES(A)                                                                     \
  MEMONGER_WITH_AVX2(Elu, (A* __restrict z, int64_t length, A slope), (z, length, slope))      \
  MEMONGER_WITH_AVX2(UndoLeaky, (const A* y, const A* g, int64_t length, const Inverse<A>& how, \
                                 A* __restrict dz, A* __restrict hat),                         \
                     (y, g, length, how, dz, hat))                                             \
  MEMONGER_WITH_AVX2(UndoElu, (const A* y, const A* g, int64_t length, const Inverse<A>& how,  \
                               A* __restrict dz, A* __restrict hat),                           \
                     (y, g, length, how, dz, hat))                                             \
  MEMONGER_WITH_AVX2(GateLeaky, (const A* y, const A* g, int64_t length, A slope,              \
                                 A* __restrict dz), (y, g, length, slope, dz))                 \
  MEMONGER_WITH_AVX2(GateElu, (const A* y, const A* g, int64_t length, A slope,                \
                               A* __restrict dz), (y, g, length, slope, dz))                   \
  MEMONGER_WITH_AVX2(AddSums, (const A* dz, const A* hat, int64_t length,                      \
                               double* __restrict sums), (dz, hat, length, sums))              \
  MEMONGER_WITH_AVX2(Combine, (const A* dz, const A* hat, int64_t length, A factor, A mean,    \
                               A slope, A* __restrict to),                                     \
                     (dz, hat, length, factor, mean, slope, to))                               \
  MEMONGER_WITH_AVX2(AddValues, (const A* x, int64_t length, double* sum), (x, length, sum))   \
  MEMONGER_WITH_AVX2(AddSquares, (const A* x, int64_t length, double mean, double* sum),       \
                     (x, length, mean, sum))                                                   \
  MEMONGER_WITH_WIDEST(ScaleLeaky, (const A* x, int64_t length, double mean, double scale,     \
                                    double shift, double slope, A* z),                         \
                       (x, length, mean, scale, shift, slope, z))                              \
  MEMONGER_WITH_AVX2(Squares, (const A* x, int64_t length, A mean, A* __restrict to),          \
                     (x, length, mean, to))
MEMONGER_FOR_REALS(MEMONGER_PIECES)

}  // namespace ops
}  // namespace memonger
