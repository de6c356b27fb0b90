#include "./wide_gates.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace memonger {
namespace ops {

#if defined(__x86_64__) && defined(__GNUC__)
namespace {

template <int kComparison, bool kScales>
__attribute__((target("avx2"))) bool Stretch(const float* x, int64_t bytes, float slope, float* y,
                                             uint8_t* mask) {
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

}  // namespace

bool HasWideGates() {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  return has_avx2;
}

bool WideStretch(const WideGate& gate, const float* x, int64_t bytes, float* y, uint8_t* mask) {
  if (gate.scales) {
    return gate.nan_passes ? Stretch<_CMP_NLE_UQ, true>(x, bytes, gate.slope, y, mask)
                           : Stretch<_CMP_GT_OQ, true>(x, bytes, gate.slope, y, mask);
  }
  return gate.nan_passes ? Stretch<_CMP_NLE_UQ, false>(x, bytes, gate.slope, y, mask)
                         : Stretch<_CMP_GT_OQ, false>(x, bytes, gate.slope, y, mask);
}
#else
bool HasWideGates() { return false; }
bool WideStretch(const WideGate&, const float*, int64_t, float*, uint8_t*) { return false; }
#endif

}  // namespace ops
}  // namespace memonger
