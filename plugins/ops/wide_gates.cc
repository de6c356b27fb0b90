#include "./wide_gates.h"

#include <cstring>

#include "./wide.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace memonger {
namespace ops {

#if defined(__x86_64__) && defined(__GNUC__)
namespace {

template <int kComparison, bool kScales>
MEMONGER_AVX2 bool Stretch(const float* x, int64_t bytes, float slope, float* y, uint8_t* mask) {
  const __m256 zero = _mm256_setzero_ps(), slopes = _mm256_set1_ps(slope);
  __m256 nan = zero;
  for (int64_t b = 0; b < bytes; ++b) {
    const __m256 value = _mm256_loadu_ps(x + 8 * b);
    const __m256 passes = _mm256_cmp_ps(value, zero, kComparison);
    nan = _mm256_or_ps(nan, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    _mm256_storeu_ps(y + 8 * b, kScales ? _mm256_blendv_ps(_mm256_mul_ps(value, slopes), value,
                                                           passes)
                                        : _mm256_and_ps(passes, value));
    mask[b] = static_cast<uint8_t>(_mm256_movemask_ps(passes));
  }
  return _mm256_movemask_ps(nan) != 0;
}

MEMONGER_AVX2 void Scale(const float* from, const uint8_t* bits, int64_t length, float open,
                         float closed, bool add, float* to) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256 opens = _mm256_set1_ps(open), closes = _mm256_set1_ps(closed);
  for (int64_t i = 0; i < length; i += 8) {
    const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits[i / 8]), lane),
                                           lane);
    const __m256 value = _mm256_mul_ps(
        _mm256_loadu_ps(from + i), _mm256_blendv_ps(closes, opens, _mm256_castsi256_ps(set)));
    _mm256_storeu_ps(to + i, add ? _mm256_add_ps(_mm256_loadu_ps(to + i), value) : value);
  }
}

MEMONGER_AVX2 void Scale(const double* from, const uint8_t* bits, int64_t length, double open,
                         double closed, bool add, double* to) {
  const __m256i lanes[] = {_mm256_setr_epi64x(1, 2, 4, 8), _mm256_setr_epi64x(16, 32, 64, 128)};
  const __m256d opens = _mm256_set1_pd(open), closes = _mm256_set1_pd(closed);
  for (int64_t i = 0; i < length; i += 8, from += 8, to += 8) {
    const __m256i all = _mm256_set1_epi64x(bits[i / 8]);
    for (int half = 0; half < 2; ++half) {
      const __m256i set = _mm256_cmpeq_epi64(_mm256_and_si256(all, lanes[half]), lanes[half]);
      const __m256d factor = _mm256_blendv_pd(closes, opens, _mm256_castsi256_pd(set));
      const __m256d value = _mm256_mul_pd(_mm256_loadu_pd(from + 4 * half), factor);
      _mm256_storeu_pd(to + 4 * half,
                       add ? _mm256_add_pd(_mm256_loadu_pd(to + 4 * half), value) : value);
    }
  }
}

// Eight bytes of the mask at a time.
template <int kComparison, bool kScales>
MEMONGER_WIDEST bool StretchWidest(const float* x, int64_t bytes, float slope, float* y,
                                   uint8_t* mask) {
  const __m512 zero = _mm512_setzero_ps(), slopes = _mm512_set1_ps(slope);
  unsigned nan = 0;
  int64_t b = 0;
  for (; b + 8 <= bytes; b += 8) {
    __m512 value[4];
    for (int k = 0; k < 4; ++k) value[k] = _mm512_loadu_ps(x + 8 * b + 16 * k);
    nan |= _mm512_cmp_ps_mask(value[0], value[1], _CMP_UNORD_Q) |
           _mm512_cmp_ps_mask(value[2], value[3], _CMP_UNORD_Q);
    uint64_t bits = 0;
    for (int k = 0; k < 4; ++k) {
      const __mmask16 passes = _mm512_cmp_ps_mask(value[k], zero, kComparison);
      _mm512_storeu_ps(y + 8 * b + 16 * k,
                       kScales ? _mm512_mask_mul_ps(value[k], _mm512_knot(passes), value[k], slopes)
                               : _mm512_maskz_mov_ps(passes, value[k]));
      bits |= uint64_t{passes} << (16 * k);
    }
    std::memcpy(mask + b, &bits, 8);
  }
  return Stretch<kComparison, kScales>(x + 8 * b, bytes - b, slope, y + 8 * b, mask + b) ||
         nan != 0;
}

// These do not add: a sum would be made in one operation with the product, and rounded once.
MEMONGER_WIDEST void ScaleWidest(const float* from, const uint8_t* bits, int64_t length, float open,
                                 float closed, float* to) {
  const __m512 opens = _mm512_set1_ps(open), closes = _mm512_set1_ps(closed);
  int64_t i = 0;
  for (; i + 16 <= length; i += 16) {
    __mmask16 set;
    std::memcpy(&set, bits + i / 8, 2);
    _mm512_storeu_ps(to + i, _mm512_mul_ps(_mm512_loadu_ps(from + i),
                                           _mm512_mask_blend_ps(set, closes, opens)));
  }
  Scale(from + i, bits + i / 8, length - i, open, closed, false, to + i);
}

MEMONGER_WIDEST void ScaleWidest(const double* from, const uint8_t* bits, int64_t length,
                                 double open, double closed, double* to) {
  const __m512d opens = _mm512_set1_pd(open), closes = _mm512_set1_pd(closed);
  for (int64_t i = 0; i < length; i += 8) {
    _mm512_storeu_pd(to + i, _mm512_mul_pd(_mm512_loadu_pd(from + i),
                                           _mm512_mask_blend_pd(bits[i / 8], closes, opens)));
  }
}

template <class T>
bool ScaleIfWide(const T* from, const uint8_t* bits, int64_t length, T open, T closed, bool add,
                 T* to) {
  if (!HasAvx2()) return false;
  if (HasAvx512() && !add) {
    ScaleWidest(from, bits, length, open, closed, to);
  } else {
    Scale(from, bits, length, open, closed, add, to);
  }
  return true;
}

template <int kComparison, bool kScales>
bool StretchOf(const WideGate& gate, const float* x, int64_t bytes, float* y, uint8_t* mask) {
  return (HasAvx512() ? StretchWidest<kComparison, kScales> : Stretch<kComparison, kScales>)(
      x, bytes, gate.slope, y, mask);
}

}  // namespace

bool WideStretch(const WideGate& gate, const float* x, int64_t bytes, float* y, uint8_t* mask) {
  if (gate.scales) {
    return gate.nan_passes ? StretchOf<_CMP_NLE_UQ, true>(gate, x, bytes, y, mask)
                           : StretchOf<_CMP_GT_OQ, true>(gate, x, bytes, y, mask);
  }
  return gate.nan_passes ? StretchOf<_CMP_NLE_UQ, false>(gate, x, bytes, y, mask)
                         : StretchOf<_CMP_GT_OQ, false>(gate, x, bytes, y, mask);
}
#else
template <class T>
static bool ScaleIfWide(const T*, const uint8_t*, int64_t, T, T, bool, T*) { return false; }
bool WideStretch(const WideGate&, const float*, int64_t, float*, uint8_t*) { return false; }
#endif

bool WideScale(const float* from, const uint8_t* bits, int64_t length, float open, float closed,
               bool add, float* to) {
  return ScaleIfWide(from, bits, length, open, closed, add, to);
}

bool WideScale(const double* from, const uint8_t* bits, int64_t length, double open,
               double closed, bool add, double* to) {
  return ScaleIfWide(from, bits, length, open, closed, add, to);
}

}  // namespace ops
}  // namespace memonger
