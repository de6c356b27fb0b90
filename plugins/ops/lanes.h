/*
 * A few numbers at once: the least of SIMD that the operators need.
 *
 * Lanes<T>::V holds kWidth numbers; comparisons give all-ones lanes. SSE2 is part of x86-64, so
 * nothing is checked at run time. Types and processors without it take one lane.
 */
#ifndef MEMONGER_OPS_LANES_H_
#define MEMONGER_OPS_LANES_H_

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <cstdint>

#include "./common.h"

namespace memonger {
namespace ops {

template <class T>
struct Single {
  static constexpr int kWidth = 1;
  using V = T;
  using M = bool;
  static V Load(const T* p) { return *p; }
  static V LoadEven(const T* p) { return *p; }  // p[0], p[2], ...: reads 2 * kWidth numbers
  static void Put(T* p, V v) { *p = v; }
  static V All(T v) { return v; }
  static V Mul(V a, V b) { return a * b; }
  static V Add(V a, V b) { return a + b; }
  static V Sub(V a, V b) { return a - b; }
  static V MulAsFloat(V a, float b) { return V(static_cast<float>(a) * b); }
  static V Max(V a, V b) { return a > b ? a : b; }  // b where one is NaN
  static M Above(V a, V b) { return a > b; }
  static M Equal(V a, V b) { return a == b; }
  static M NotAtMost(V a, V b) { return !(a <= b); }
  static M Nan(V a) { return a != a; }
  static M None() { return false; }
  static M Either(M a, M b) { return a || b; }
  static M Not(M a) { return !a; }
  static V Pick(M m, V yes, V no) { return m ? yes : no; }
  static unsigned Bits(M m) { return m; }
  static M Expand(unsigned bits) { return bits & 1; }
};

template <class T>
struct Lanes : Single<T> {};

#if defined(__SSE2__)
template <>
struct Lanes<float> {
  static constexpr int kWidth = 4;
  using V = __m128;
  using M = __m128;
  static V Load(const float* p) { return _mm_loadu_ps(p); }
  static V LoadEven(const float* p) {
    return _mm_shuffle_ps(_mm_loadu_ps(p), _mm_loadu_ps(p + 4), _MM_SHUFFLE(2, 0, 2, 0));
  }
  static void Put(float* p, V v) { _mm_storeu_ps(p, v); }
  static V All(float v) { return _mm_set1_ps(v); }
  static V Mul(V a, V b) { return _mm_mul_ps(a, b); }
  static V Add(V a, V b) { return _mm_add_ps(a, b); }
  static V Sub(V a, V b) { return _mm_sub_ps(a, b); }
  static V MulAsFloat(V a, float b) { return _mm_mul_ps(a, _mm_set1_ps(b)); }
  static V Max(V a, V b) { return _mm_max_ps(a, b); }
  static M Above(V a, V b) { return _mm_cmpgt_ps(a, b); }
  static M Equal(V a, V b) { return _mm_cmpeq_ps(a, b); }
  static M NotAtMost(V a, V b) { return _mm_cmpnle_ps(a, b); }
  static M Nan(V a) { return _mm_cmpunord_ps(a, a); }
  static M None() { return _mm_setzero_ps(); }
  static M Either(M a, M b) { return _mm_or_ps(a, b); }
  static M Not(M a) { return _mm_xor_ps(a, _mm_castsi128_ps(_mm_set1_epi32(-1))); }
  static V Pick(M m, V yes, V no) { return _mm_or_ps(_mm_and_ps(m, yes), _mm_andnot_ps(m, no)); }
  static unsigned Bits(M m) { return static_cast<unsigned>(_mm_movemask_ps(m)); }
  static M Expand(unsigned bits) {  // bit i of the low four fills lane i
    const __m128i lane = _mm_set_epi32(8, 4, 2, 1);
    const __m128i all = _mm_set1_epi32(static_cast<int>(bits));
    return _mm_castsi128_ps(_mm_cmpeq_epi32(_mm_and_si128(all, lane), lane));
  }
};

template <>
struct Lanes<double> {
  static constexpr int kWidth = 2;
  using V = __m128d;
  using M = __m128d;
  static V Load(const double* p) { return _mm_loadu_pd(p); }
  static V LoadEven(const double* p) {
    return _mm_unpacklo_pd(_mm_loadu_pd(p), _mm_loadu_pd(p + 2));
  }
  static void Put(double* p, V v) { _mm_storeu_pd(p, v); }
  static V All(double v) { return _mm_set1_pd(v); }
  static V Mul(V a, V b) { return _mm_mul_pd(a, b); }
  static V Add(V a, V b) { return _mm_add_pd(a, b); }
  static V Sub(V a, V b) { return _mm_sub_pd(a, b); }
  static V MulAsFloat(V a, float b) {
    return _mm_cvtps_pd(_mm_mul_ps(_mm_cvtpd_ps(a), _mm_set1_ps(b)));
  }
  static V Max(V a, V b) { return _mm_max_pd(a, b); }
  static M Above(V a, V b) { return _mm_cmpgt_pd(a, b); }
  static M Equal(V a, V b) { return _mm_cmpeq_pd(a, b); }
  static M NotAtMost(V a, V b) { return _mm_cmpnle_pd(a, b); }
  static M Nan(V a) { return _mm_cmpunord_pd(a, a); }
  static M None() { return _mm_setzero_pd(); }
  static M Either(M a, M b) { return _mm_or_pd(a, b); }
  static M Not(M a) { return _mm_xor_pd(a, _mm_castsi128_pd(_mm_set1_epi32(-1))); }
  static V Pick(M m, V yes, V no) { return _mm_or_pd(_mm_and_pd(m, yes), _mm_andnot_pd(m, no)); }
  static unsigned Bits(M m) { return static_cast<unsigned>(_mm_movemask_pd(m)); }
  static M Expand(unsigned bits) {  // two equal 32-bit halves a lane
    const __m128i lane = _mm_set_epi32(2, 2, 1, 1);
    const __m128i all = _mm_set1_epi32(static_cast<int>(bits));
    return _mm_castsi128_pd(_mm_cmpeq_epi32(_mm_and_si128(all, lane), lane));
  }
};
#endif  // __SSE2__

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_LANES_H_
