// Gelu of float32 with AVX2 and fused multiply-adds.
#include "./gelu_pieces.h"
#include "./wide.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <cstring>

#if defined(__clang__)
#pragma clang fp contract(fast)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif

namespace memonger {
namespace ops {
namespace {

struct Simd {
  static constexpr int kWidth = 8;
  using V = __m256;
  using I = __m256i;
  static V All(float value) { return _mm256_set1_ps(value); }
  static V Load(const float* from) { return _mm256_loadu_ps(from); }
  static void Put(float* to, V v) { _mm256_storeu_ps(to, v); }
  static V Sqrt(V v) { return _mm256_sqrt_ps(v); }
  static V Abs(V v) { return _mm256_andnot_ps(All(-0.0f), v); }
  static V Min(V a, V b) { return _mm256_min_ps(a, b); }  // b where one is NaN
  static V Max(V a, V b) { return _mm256_max_ps(a, b); }
  using M = int __attribute__((vector_size(32)));
  static M Less(V a, V b) { return reinterpret_cast<M>(_mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
  static M Negative(I value) { return reinterpret_cast<M>(value) < 0; }
#if defined(__clang__)
  static V Pick(M mask, V yes, V no) {
    return _mm256_blendv_ps(no, yes, reinterpret_cast<V>(mask));
  }
#else  // of _mm256_blendv_ps g++ makes two instructions
  static V Pick(M mask, V yes, V no) { return mask ? yes : no; }
#endif
  static I Filled(M mask) { return reinterpret_cast<I>(mask); }
  static M Both(M a, M b) { return a & b; }
  static M Either(M a, M b) { return a | b; }
  static bool Any(M mask) { return _mm256_movemask_ps(_mm256_castsi256_ps(Filled(mask))) != 0; }
  static I Bits(V v) { return _mm256_castps_si256(v); }
  static V FromBits(I bits) { return _mm256_castsi256_ps(bits); }
  static I All(int value) { return _mm256_set1_epi32(value); }
  static I Add(I a, I b) { return _mm256_add_epi32(a, b); }
  static I Sub(I a, I b) { return _mm256_sub_epi32(a, b); }
  static I And(I a, I b) { return _mm256_and_si256(a, b); }
  static I Or(I value, M mask, int bits) {
    return _mm256_or_si256(value, And(Filled(mask), All(bits)));
  }
  static M HasBit7(I value) { return Negative(_mm256_slli_epi32(value, 24)); }
  // table[place % 8]
  static V LookUp(const float* table, I place) {
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), place);
  }
  static I LoadBytes(const uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  // Two vectors of numbers below 256.
  static void PutBytes(uint8_t* to, I first, I second) {
    const __m256i words = _mm256_packus_epi32(first, second);
    const __m256i bytes = _mm256_packus_epi16(words, words);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(bytes, order)));
  }
};

}  // namespace
}  // namespace ops
}  // namespace memonger

#include "./gelu_tables_8.h"
#define MEMONGER_GELU_FORWARD GeluForwardAvx2
#define MEMONGER_GELU_BACKWARD GeluBackwardAvx2
#include "./gelu_vectors.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
