#include "./half_pieces.h"

#include "./cpu.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace memonger {
namespace ops {

#if defined(__x86_64__) && defined(__GNUC__)
#define MEMONGER_F16C __attribute__((target("avx2,f16c")))

bool ConvertsHalves() {
  static const bool converts = [] {
    unsigned a, b, c, d;  // compilers before GCC 11 know no name for F16C
    return HasAvx2() && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
  }();
  return converts;
}

namespace {

MEMONGER_F16C inline __m256 Load(const uint16_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

MEMONGER_F16C inline __m128i Halves(__m256 v) {
  return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

MEMONGER_F16C inline void Put(uint16_t* to, __m256 v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), Halves(v));
}

MEMONGER_F16C inline __m256 Rounded(__m256 v) { return _mm256_cvtph_ps(Halves(v)); }
MEMONGER_F16C inline __m256 Sub(__m256 a, __m256 b) { return Rounded(_mm256_sub_ps(a, b)); }
MEMONGER_F16C inline __m256 Mul(__m256 a, __m256 b) { return Rounded(_mm256_mul_ps(a, b)); }

// How eight inputs are normalised, and ReLU's gradient behind it.
struct Eight {
  const __m256 mean, invstd, gamma, beta, at_nan;

  MEMONGER_F16C explicit Eight(const NormThenRelu<float>& how)
      : mean(_mm256_set1_ps(how.mean)), invstd(_mm256_set1_ps(how.invstd)),
        gamma(_mm256_set1_ps(how.gamma)), beta(_mm256_set1_ps(how.beta)),
        at_nan(_mm256_castsi256_ps(_mm256_set1_epi32(how.nan_matters ? -1 : 0))) {}

  MEMONGER_F16C __m256 Centered(const uint16_t* x) const { return Sub(Load(x), mean); }

  MEMONGER_F16C __m256 Normalised(__m256 centered) const {
    return Rounded(_mm256_add_ps(Mul(Mul(centered, invstd), gamma), beta));
  }

  // Which of the normalised are NaN, and shall be.
  MEMONGER_F16C __m256 Nan(__m256 z) const {
    return _mm256_and_ps(_mm256_cmp_ps(z, z, _CMP_UNORD_Q), at_nan);
  }

  MEMONGER_F16C __m256 BehindRelu(__m256 centered, __m256 g) const {
    const __m256 z = Normalised(centered);
    const __m256 open = _mm256_cmp_ps(z, _mm256_setzero_ps(), _CMP_GT_OQ);
    return Mul(g, _mm256_or_ps(_mm256_and_ps(open, _mm256_set1_ps(1.0f)),
                               _mm256_and_ps(Nan(z), z)));
  }
};

MEMONGER_F16C void ToFloats(const uint16_t* from, int64_t length, float* to) {
  for (int64_t i = 0; i < length; i += 8) _mm256_storeu_ps(to + i, Load(from + i));
}

MEMONGER_F16C void ToHalves(const float* from, int64_t length, uint16_t* to) {
  for (int64_t i = 0; i < length; i += 8) Put(to + i, _mm256_loadu_ps(from + i));
}

MEMONGER_F16C void Scale(const uint16_t* from, const uint8_t* bits, int64_t length, float open,
                         float closed, bool add, uint16_t* to) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256 opens = _mm256_set1_ps(open), closes = _mm256_set1_ps(closed);
  for (int64_t i = 0; i < length; i += 8) {
    const __m256i all = _mm256_set1_epi32(bits[i / 8]);
    const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(all, lane), lane);
    const __m256 factor = _mm256_blendv_ps(closes, opens, _mm256_castsi256_ps(set));
    const __m256 value = _mm256_mul_ps(Load(from + i), factor);
    Put(to + i, add ? _mm256_add_ps(Load(to + i), Rounded(value)) : value);
  }
}

MEMONGER_F16C void NormReluOutput(const uint16_t* x, int64_t length,
                                  const NormThenRelu<float>& how, uint16_t* y) {
  const Eight eight(how);
  for (int64_t i = 0; i < length; i += 8) {
    const __m256 z = eight.Normalised(eight.Centered(x + i));
    const __m256 above = _mm256_cmp_ps(z, _mm256_setzero_ps(), _CMP_GT_OQ);
    Put(y + i, _mm256_and_ps(_mm256_or_ps(above, eight.Nan(z)), z));
  }
}

MEMONGER_F16C void ReluTerms(const uint16_t* x, const uint16_t* g, int64_t length,
                             const NormThenRelu<float>& how, float* dz, float* products) {
  const Eight eight(how);
  for (int64_t i = 0; i < length; i += 8) {
    const __m256 centered = eight.Centered(x + i);
    const __m256 gradient = eight.BehindRelu(centered, Load(g + i));
    _mm256_storeu_ps(dz + i, gradient);
    _mm256_storeu_ps(products + i, Mul(centered, gradient));
  }
}

MEMONGER_F16C void ReluGradient(const uint16_t* x, const uint16_t* g, int64_t length,
                                const NormThenRelu<float>& how, float shift, float slope,
                                float scale, uint16_t* to) {
  const Eight eight(how);
  const __m256 shifts = _mm256_set1_ps(shift), slopes = _mm256_set1_ps(slope);
  const __m256 scales = _mm256_set1_ps(scale);
  for (int64_t i = 0; i < length; i += 8) {
    const __m256 centered = eight.Centered(x + i);
    const __m256 shifted = Sub(eight.BehindRelu(centered, Load(g + i)), shifts);
    const __m256 part = how.of_batch ? Mul(centered, slopes) : _mm256_setzero_ps();
    Put(to + i, Mul(Sub(shifted, part), scales));
  }
}

}  // namespace

#define MEMONGER_HALF_PIECE(NAME, PIECE, PARAMETERS, ARGUMENTS)    \
  int64_t NAME PARAMETERS {                                        \
    const int64_t whole = ConvertsHalves() ? length / 8 * 8 : 0;   \
    length = whole;                                                \
    if (whole > 0) PIECE ARGUMENTS;                                \
    return whole;                                                  \
  }
#else
bool ConvertsHalves() { return false; }
#define MEMONGER_HALF_PIECE(NAME, PIECE, PARAMETERS, ARGUMENTS) \
  int64_t NAME PARAMETERS { return 0; }
#endif

MEMONGER_HALF_PIECE(HalvesToFloats, ToFloats, (const uint16_t* from, int64_t length, float* to),
                    (from, length, to))
MEMONGER_HALF_PIECE(FloatsToHalves, ToHalves, (const float* from, int64_t length, uint16_t* to),
                    (from, length, to))
MEMONGER_HALF_PIECE(HalfScale, Scale,
                    (const uint16_t* from, const uint8_t* bits, int64_t length, float open,
                     float closed, bool add, uint16_t* to),
                    (from, bits, length, open, closed, add, to))
MEMONGER_HALF_PIECE(HalfNormReluOutput, NormReluOutput,
                    (const uint16_t* x, int64_t length, const NormThenRelu<float>& how,
                     uint16_t* y),
                    (x, length, how, y))
MEMONGER_HALF_PIECE(HalfReluTerms, ReluTerms,
                    (const uint16_t* x, const uint16_t* g, int64_t length,
                     const NormThenRelu<float>& how, float* dz, float* products),
                    (x, g, length, how, dz, products))
MEMONGER_HALF_PIECE(HalfReluGradient, ReluGradient,
                    (const uint16_t* x, const uint16_t* g, int64_t length,
                     const NormThenRelu<float>& how, float shift, float slope, float scale,
                     uint16_t* to),
                    (x, g, length, how, shift, slope, scale, to))

}  // namespace ops
}  // namespace memonger
