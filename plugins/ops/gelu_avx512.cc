// Gelu of float32 with AVX-512.
#include "./gelu_pieces.h"
#include "./wide.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <cstring>

#if defined(__clang__)
#pragma clang fp contract(fast)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")
#endif

namespace memonger {
namespace ops {
namespace {

struct Simd {
  static constexpr int kWidth = 16;
  using V = __m512;
  using M = __mmask16;
  using I = __m512i;
  static V All(float value) { return _mm512_set1_ps(value); }
  static V Load(const float* from) { return _mm512_loadu_ps(from); }
  static void Put(float* to, V v) { _mm512_storeu_ps(to, v); }
  static V Sqrt(V v) { return _mm512_sqrt_ps(v); }
  static V Abs(V v) { return _mm512_abs_ps(v); }
  static V Min(V a, V b) { return _mm512_min_ps(a, b); }  // b where one is NaN
  static V Max(V a, V b) { return _mm512_max_ps(a, b); }
  static M Less(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static V Pick(M mask, V yes, V no) { return _mm512_mask_blend_ps(mask, no, yes); }
  static M Both(M a, M b) { return a & b; }
  static M Either(M a, M b) { return a | b; }
  static bool Any(M mask) { return mask != 0; }
  static I Bits(V v) { return _mm512_castps_si512(v); }
  static V FromBits(I bits) { return _mm512_castsi512_ps(bits); }
  static M Negative(I value) { return _mm512_movepi32_mask(value); }
  static I All(int value) { return _mm512_set1_epi32(value); }
  static I Add(I a, I b) { return _mm512_add_epi32(a, b); }
  static I Sub(I a, I b) { return _mm512_sub_epi32(a, b); }
  static I And(I a, I b) { return _mm512_and_epi32(a, b); }
  static I Or(I value, M mask, int bits) {
    return _mm512_mask_or_epi32(value, mask, value, All(bits));
  }
  static M HasBit7(I value) { return _mm512_test_epi32_mask(value, All(128)); }
  // table[place % 16]
  static V LookUp(const float* table, I place) {
    return _mm512_permutexvar_ps(place, _mm512_loadu_ps(table));
  }
  static I LoadBytes(const uint8_t* from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  // Two vectors of numbers below 256.
  static void PutBytes(uint8_t* to, I first, I second) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(first));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to) + 1, _mm512_cvtepi32_epi8(second));
  }
};

}  // namespace
}  // namespace ops
}  // namespace memonger

#include "./gelu_tables_16.h"
#define MEMONGER_GELU_FORWARD GeluForwardAvx512
#define MEMONGER_GELU_BACKWARD GeluBackwardAvx512
#include "./gelu_vectors.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
