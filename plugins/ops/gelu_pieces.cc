// Selections become SIMD only where comparisons may not trap; results are the same.
#pragma GCC optimize("no-trapping-math")
#include "./gelu_pieces.h"

#include "./wide.h"

namespace memonger {
namespace ops {
namespace {

// Not std::sqrt, which may have been defined in front of the pragma.
MEMONGER_INLINE float gelu_sqrt(float value) { return __builtin_sqrtf(value); }
MEMONGER_INLINE double gelu_sqrt(double value) { return __builtin_sqrt(value); }
MEMONGER_INLINE float gelu_abs(float value) { return __builtin_fabsf(value); }
MEMONGER_INLINE double gelu_abs(double value) { return __builtin_fabs(value); }

#define MEMONGER_GELU_INLINE MEMONGER_INLINE
#include "./cuda/gelu.cu"

template <class A>
MEMONGER_INLINE void GeluForwardBody(const A* x, int64_t length, int bits, A* y,
                                     uint8_t* __restrict bytes) {
  const GeluGrid<A> grid = gelu_grid<A>(bits);
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) {
    const Gelu<A> value = gelu_of(x[i], grid);
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
    for (int64_t i = 0; i < length; ++i) to[i] += g[i] * gelu_slope(y[i], bytes[i], grid);
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) to[i] = g[i] * gelu_slope(y[i], bytes[i], grid);
}

}  // namespace

#define MEMONGER_GELU(A)                                                                        \
  MEMONGER_WITH_WIDEST(GeluForward,                                                             \
                       (const A* x, int64_t length, int bits, A* y, uint8_t* bytes),            \
                       (x, length, bits, y, bytes))                                             \
  MEMONGER_WITH_WIDEST(GeluBackward, (const A* g, const A* y, const uint8_t* bytes,             \
                                      int64_t length, int bits, bool add, A* to),               \
                       (g, y, bytes, length, bits, add, to))
MEMONGER_GELU(float)
MEMONGER_GELU(double)
#undef MEMONGER_GELU

}  // namespace ops
}  // namespace memonger
