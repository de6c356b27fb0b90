// Selections become SIMD only where comparisons may not trap; results are the same.
#pragma GCC optimize("no-trapping-math")
#include "./gelu_pieces.h"

#include "./exponentials.h"
#include "./wide.h"

namespace memonger {
namespace ops {
namespace {

// Not std::sqrt, which may have been defined in front of the pragma.
MEMONGER_INLINE float gelu_sqrt(float value) { return __builtin_sqrtf(value); }
MEMONGER_INLINE double gelu_sqrt(double value) { return __builtin_sqrt(value); }
MEMONGER_INLINE float gelu_abs(float value) { return __builtin_fabsf(value); }
MEMONGER_INLINE double gelu_abs(double value) { return __builtin_fabs(value); }

// SIMD with every instruction set; 9 * 2^49 is to doubles what kGeluRound is to floats.
MEMONGER_INLINE int gelu_round(float value, float scale, int shift) {
  return static_cast<int>(ToBits(value * scale + (kGeluRound + shift)));
}
MEMONGER_INLINE int gelu_round(double value, double scale, int shift) {
  return static_cast<int>(ToBits(value * scale + (5066549580791808.0 + shift)));
}
template <class A>
A gelu_real(int rounded);
template <>
MEMONGER_INLINE float gelu_real<float>(int rounded) {
  return FloatFromBits(static_cast<uint32_t>(rounded)) - kGeluRound;
}
template <>
MEMONGER_INLINE double gelu_real<double>(int rounded) {
  return rounded;
}

MEMONGER_INLINE bool gelu_any(bool) { return true; }  // a branch would not become SIMD

MEMONGER_INLINE float gelu_exp2(float value) { return Exp2(value); }
MEMONGER_INLINE double gelu_exp2(double value) { return Exp2(value); }

#define MEMONGER_GELU_INLINE MEMONGER_INLINE
#include "./cuda/gelu.cu"

template <class A>
MEMONGER_INLINE void GeluForwardBody(const A* x, int64_t length, int bits, A* y,
                                     uint8_t* __restrict bytes) {
  const GeluGrid<A> grid = gelu_grid<A>(bits);
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) {
    const Gelu<A, int> value = gelu_of<int>(x[i], grid);
    y[i] = value.y;
    bytes[i] = static_cast<uint8_t>(value.byte);
  }
}

template <class A>
MEMONGER_INLINE void GeluBackwardBody(const A* g, const A* y, const uint8_t* __restrict bytes,
                                      int64_t length, int bits, bool add, A* to) {
  const GeluGrid<A> grid = gelu_grid<A>(bits);
  if (add) {
#pragma omp simd
    for (int64_t i = 0; i < length; ++i) to[i] += g[i] * gelu_slope(y[i], int{bytes[i]}, grid);
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) to[i] = g[i] * gelu_slope(y[i], int{bytes[i]}, grid);
}

}  // namespace

#if defined(__x86_64__) && defined(__GNUC__)
#define MEMONGER_FOR_FLOATS(NAME) \
  (HasAvx512() ? NAME##Avx512 : HasAvx2() ? NAME##Avx2 : NAME##Body<float>)
#else
#define MEMONGER_FOR_FLOATS(NAME) NAME##Body<float>
#endif
void GeluForward(const float* x, int64_t length, int bits, float* y, uint8_t* bytes) {
  MEMONGER_FOR_FLOATS(GeluForward)(x, length, bits, y, bytes);
}

void GeluBackward(const float* g, const float* y, const uint8_t* bytes, int64_t length, int bits,
                  bool add, float* to) {
  MEMONGER_FOR_FLOATS(GeluBackward)(g, y, bytes, length, bits, add, to);
}

MEMONGER_WITH_WIDEST(GeluForward,
                     (const double* x, int64_t length, int bits, double* y, uint8_t* bytes),
                     (x, length, bits, y, bytes))
MEMONGER_WITH_WIDEST(GeluBackward, (const double* g, const double* y, const uint8_t* bytes,
                                    int64_t length, int bits, bool add, double* to),
                     (g, y, bytes, length, bits, add, to))

}  // namespace ops
}  // namespace memonger
