/*
 * 2^x, exp(x) - 1 and log(1 + u) without branches, so that loops over them become SIMD.
 *
 * Argument reduction to a power of two and a polynomial, as in the classic libm of Sun (fdlibm);
 * relative errors are below 1e-15 in double and 1e-7 in float.
 */
#ifndef MEMONGER_OPS_EXPONENTIALS_H_
#define MEMONGER_OPS_EXPONENTIALS_H_

#include <cstdint>
#include <cstring>

namespace memonger {
namespace ops {

inline double FromBits(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint64_t ToBits(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float FloatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint32_t ToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// value * 2^n, n being in the last bits of `shifted`.
inline float Raised(float value, float shifted) {
  return FloatFromBits(ToBits(value) + (ToBits(shifted) << 23));
}
inline double Raised(double value, double shifted) {
  return FromBits(ToBits(value) + (ToBits(shifted) << 52));
}

// 2^x for -126 < x <= 0, for float or double; the error is 2e-9. tools/fit_gelu.py prints the
// polynomial.
template <class A>
inline A Exp2(A x) {
  constexpr A kRound = sizeof(A) == 4 ? A(12582912.0) : A(6755399441055744.0);
  const A shifted = x + kRound, f = x - (shifted - kRound);
  A p = A(1.534581194e-04);
  p = p * f + A(1.339993122e-03);
  p = p * f + A(9.618488957e-03);
  p = p * f + A(5.550328777e-02);
  p = p * f + A(2.402264689e-01);
  p = p * f + A(6.931472057e-01);
  p = p * f + A(1.000000001e+00);
  return Raised(p, shifted);
}

// For x <= 0.
inline double ExpM1(double x) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const double bounded = x < -60.0 ? -60.0 : x;
  const double shifted = bounded * 1.4426950408889634 + kRound;
  const double k = shifted - kRound;
  const double power = FromBits((ToBits(shifted) + 1023) << 52);  // 2^k
  const double r = (bounded - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
  double p = 1.0 / 6227020800.0;  // Taylor: |r| < 0.35
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * (r * r) + r;
  return power * p + (power - 1.0);
}

inline float ExpM1(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
  const float bounded = x < -30.0f ? -30.0f : x;
  const float shifted = bounded * 1.44269504f + kRound;
  const float k = shifted - kRound;
  const float power = FloatFromBits((ToBits(shifted) + 127u) << 23);  // 2^k
  const float r = (bounded - k * 0.693359375f) + k * 2.12194440e-4f;
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * (r * r) + r;
  return power * p + (power - 1.0f);
}

// For -1 <= u <= 0; far below zero where 1 + u is nothing.
inline double Log1P(double u) {
  constexpr uint64_t kOne = 0x3ff0000000000000ull, kHalfRoot = 0x3fe6a09e667f3bcdull;
  const double sum = 1.0 + u, w = sum < 1e-300 ? 1e-300 : sum;
  const double lost = (u - (w - 1.0)) / w;
  const uint64_t bits = ToBits(w) + (kOne - kHalfRoot);
  // The exponent as a double: behind the bits of 2^52.
  const double k = FromBits((bits >> 52) | 0x4330000000000000ull) - (4503599627370496.0 + 1023.0);
  const double f = FromBits((bits & 0x000fffffffffffffull) + kHalfRoot) - 1.0;
  const double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  double r = 1.479819860511658591e-01;
  r = r * z + 1.531383769920937332e-01;
  r = r * z + 1.818357216161805012e-01;
  r = r * z + 2.222219843214978396e-01;
  r = r * z + 2.857142874366239149e-01;
  r = r * z + 3.999999999940941908e-01;
  r = r * z + 6.666666666666735130e-01;
  r = r * z;
  return k * 6.93147180369123816490e-01 -
         ((half - (s * (half + r) + (k * 1.90821492927058770002e-10 + lost))) - f);
}

inline float Log1P(float u) {
  constexpr uint32_t kOne = 0x3f800000u, kHalfRoot = 0x3f3504f3u;
  const float sum = 1.0f + u, w = sum < 1e-37f ? 1e-37f : sum;
  const float lost = (u - (w - 1.0f)) / w;
  const uint32_t bits = ToBits(w) + (kOne - kHalfRoot);
  const float k = FloatFromBits((bits >> 23) | 0x4b000000u) - (8388608.0f + 127.0f);
  const float f = FloatFromBits((bits & 0x007fffffu) + kHalfRoot) - 1.0f;
  const float s = f / (2.0f + f), z = s * s, half = 0.5f * f * f;
  float r = 0.24279078841f;
  r = r * z + 0.28498786688f;
  r = r * z + 0.40000972152f;
  r = r * z + 0.66666662693f;
  r = r * z;
  return k * 6.9313812256e-01f - ((half - (s * (half + r) + (k * 9.0580006145e-06f + lost))) - f);
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_EXPONENTIALS_H_
