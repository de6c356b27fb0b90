// Selections between numbers become SIMD only where comparisons may not trap; results are the same.
// Products stay apart from sums: ReLU's gate depends on a sign that backward finds again, and MXNet
// rounds both.
#pragma GCC optimize("no-trapping-math,fp-contract=off")
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif
#include "./pieces.h"

#include <limits>

#include "./wide.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace memonger {
namespace ops {
namespace {

template <class A>
MEMONGER_INLINE A Normalised(A x, const NormThenRelu<A>& how) {
  return ((x - how.mean) * how.invstd) * how.gamma + how.beta;
}

template <class A>
MEMONGER_INLINE void NormReluOutputBody(const A* x, int64_t length, const NormThenRelu<A>& how,
                                        A* y) {
  const NormThenRelu<A> same = how;
  if (same.nan_matters) {
#pragma omp simd
    for (int64_t i = 0; i < length; ++i) {
      const A z = Normalised(x[i], same);
      y[i] = z <= A(0) ? A(0) : z;
    }
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) {
    const A z = Normalised(x[i], same);
    y[i] = z > A(0) ? z : A(0);
  }
}

// What ReLU's gradient multiplies with.
template <class A>
MEMONGER_INLINE A Gate(A x, const NormThenRelu<A>& how, A at_nan) {
  const A z = Normalised(x, how);
  const A closed = z == z ? A(0) : at_nan;
  return z > A(0) ? A(1) : closed;
}

template <class A>
MEMONGER_INLINE A AtNan(const NormThenRelu<A>& how) {
  return how.nan_matters ? std::numeric_limits<A>::quiet_NaN() : A(0);
}

template <class A>
MEMONGER_INLINE void ReluTermsBody(const A* x, const A* g, int64_t length,
                                   const NormThenRelu<A>& how, A* __restrict dz,
                                   A* __restrict products) {
  const NormThenRelu<A> same = how;
  const A at_nan = AtNan(how);
  for (int64_t i = 0; i < length; ++i) {
    dz[i] = g[i] * Gate(x[i], same, at_nan);
    products[i] = (x[i] - same.mean) * dz[i];
  }
}

template <class A>
MEMONGER_INLINE void ReluGradientBody(const A* x, const A* g, int64_t length,
                                      const NormThenRelu<A>& how, A shift, A slope, A scale,
                                      A* to) {
  const NormThenRelu<A> same = how;
  const A at_nan = AtNan(how);
  if (!how.of_batch) {
#pragma omp simd
    for (int64_t i = 0; i < length; ++i) {
      to[i] = (g[i] * Gate(x[i], same, at_nan) - shift) * scale;
    }
    return;
  }
  // The last of a row are worked on with a mask: rows of 7x7 maps are three sixteens and one.
  const int64_t whole = length / 16 * 16;
#pragma omp simd
  for (int64_t i = 0; i < whole; ++i) {
    const A dz = g[i] * Gate(x[i], same, at_nan);
    to[i] = (dz - shift - (x[i] - same.mean) * slope) * scale;
  }
  if (whole == length) return;
#pragma omp simd
  for (int64_t i = whole; i < whole + 16; ++i) {
    if (i >= length) continue;
    const A dz = g[i] * Gate(x[i], same, at_nan);
    to[i] = (dz - shift - (x[i] - same.mean) * slope) * scale;
  }
}

// The sums of a row.
MEMONGER_INLINE void SumRowBody(const float* x, const float* g, int64_t length,
                                const NormThenRelu<float>& how, ReluSums* sums) {
  const NormThenRelu<float> same = how;
  const float at_nan = AtNan(how);
  double of_dz = 0, of_products = 0;
#pragma omp simd reduction(+ : of_dz, of_products)
  for (int64_t i = 0; i < length; ++i) {
    const float dz = g[i] * Gate(x[i], same, at_nan);
    of_dz += dz;
    of_products += static_cast<double>(x[i] - same.mean) * dz;
  }
  sums->dz[0] += of_dz;
  sums->products[0] += of_products;
}
MEMONGER_WITH_AVX2(SumRow, (const float* x, const float* g, int64_t length,
                            const NormThenRelu<float>& how, ReluSums* sums),
                   (x, g, length, how, sums))

#if defined(__x86_64__) && defined(__GNUC__)
// The same with sixteen numbers at a time; those that the mask leaves out count nothing.
class SumsOfSixteens {
 public:
  MEMONGER_WIDEST SumsOfSixteens(const NormThenRelu<float>& how, const ReluSums& sums)
      : mean_(_mm512_set1_ps(how.mean)), invstd_(_mm512_set1_ps(how.invstd)),
        gamma_(_mm512_set1_ps(how.gamma)), beta_(_mm512_set1_ps(how.beta)),
        at_nan_(_mm512_set1_ps(AtNan(how))), dz_{_mm512_loadu_pd(sums.dz), _mm512_setzero_pd()},
        products_{_mm512_loadu_pd(sums.products), _mm512_setzero_pd()} {}

  MEMONGER_WIDEST void Add(const float* x, const float* g, __mmask16 mask) {
    const __m512 from_mean = _mm512_maskz_sub_ps(mask, _mm512_maskz_loadu_ps(mask, x), mean_);
    const __m512 z = _mm512_add_ps(
        _mm512_mul_ps(_mm512_mul_ps(from_mean, invstd_), gamma_), beta_);
    const __m512 gradient = _mm512_maskz_loadu_ps(mask, g);
    const __m512 gate = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(z, z, _CMP_UNORD_Q), at_nan_);
    const __mmask16 shut = _mm512_cmp_ps_mask(z, _mm512_setzero_ps(), _CMP_NGT_UQ);
    const __m512 dz = _mm512_maskz_mov_ps(mask, _mm512_mask_mul_ps(gradient, shut, gradient, gate));
    AddHalf(_mm512_castps512_ps256(from_mean), _mm512_castps512_ps256(dz), 0);
    AddHalf(_mm512_extractf32x8_ps(from_mean, 1), _mm512_extractf32x8_ps(dz, 1), 1);
  }

  MEMONGER_WIDEST void Store(ReluSums* sums) const {
    _mm512_storeu_pd(sums->dz, _mm512_add_pd(dz_[0], dz_[1]));
    _mm512_storeu_pd(sums->products, _mm512_add_pd(products_[0], products_[1]));
  }

 private:
  MEMONGER_WIDEST void AddHalf(__m256 from_mean, __m256 gradient, int half) {
    const __m512d dz = _mm512_cvtps_pd(gradient);
    dz_[half] = _mm512_add_pd(dz_[half], dz);
    products_[half] = _mm512_fmadd_pd(_mm512_cvtps_pd(from_mean), dz, products_[half]);
  }

  const __m512 mean_, invstd_, gamma_, beta_, at_nan_;
  __m512d dz_[2], products_[2];
};

MEMONGER_WIDEST void SumRowOfSixteens(const float* x, const float* g, int64_t length,
                                      const NormThenRelu<float>& how, ReluSums* sums) {
  SumsOfSixteens sixteens(how, *sums);
  int64_t i = 0;
  for (; i + 16 <= length; i += 16) sixteens.Add(x + i, g + i, 0xffff);
  if (i < length) sixteens.Add(x + i, g + i, static_cast<__mmask16>((1 << (length - i)) - 1));
  sixteens.Store(sums);
}
#endif

}  // namespace

void AddReluSums(const float* x, const float* g, int64_t length, const NormThenRelu<float>& how,
                 ReluSums* sums) {
#if defined(__x86_64__) && defined(__GNUC__)
  if (HasAvx512()) return SumRowOfSixteens(x, g, length, how, sums);
#endif
  SumRow(x, g, length, how, sums);
}

#define MEMONGER_PIECES(A)                                                                      \
  MEMONGER_WITH_WIDEST(NormReluOutput, (const A* x, int64_t length, const NormThenRelu<A>& how, \
                                        A* y), (x, length, how, y))                             \
  MEMONGER_WITH_WIDEST(ReluTerms, (const A* x, const A* g, int64_t length,                      \
                                   const NormThenRelu<A>& how, A* __restrict dz,                \
                                   A* __restrict products), (x, g, length, how, dz, products))  \
  MEMONGER_WITH_WIDEST(ReluGradient, (const A* x, const A* g, int64_t length,                   \
                                      const NormThenRelu<A>& how, A shift, A slope, A scale,    \
                                      A* to), (x, g, length, how, shift, slope, scale, to))
MEMONGER_FOR_REALS(MEMONGER_PIECES)

}  // namespace ops
}  // namespace memonger
