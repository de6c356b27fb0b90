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

MEMONGER_INLINE float gelu_exp(float z) { return Exp(z); }
MEMONGER_INLINE double gelu_exp(double z) { return Exp(z); }

#define MEMONGER_GELU_INLINE MEMONGER_INLINE
#include "./cuda/gelu.cu"

template <class A>
MEMONGER_INLINE void GeluForwardBody(const A* x, int64_t length, A* y, uint8_t* __restrict bytes) {
  const GeluGrid<A> grid = gelu_grid<A>(8 * sizeof(A));
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) {
    const Gelu<A> value = gelu_of(x[i], grid);
    y[i] = value.y;
    bytes[i] = static_cast<uint8_t>(gelu_byte(value.y, value.s, value.above, grid));
  }
}

template <class A>
MEMONGER_INLINE void GeluBackwardBody(const A* g, const A* y, const uint8_t* __restrict bytes,
                                  int64_t length, bool add, A* to) {
  const GeluGrid<A> grid = gelu_grid<A>(8 * sizeof(A));
  if (add) {
#pragma omp simd
    for (int64_t i = 0; i < length; ++i) to[i] += g[i] * gelu_slope(y[i], bytes[i], grid);
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) to[i] = g[i] * gelu_slope(y[i], bytes[i], grid);
}

MEMONGER_INLINE void GeluHalfValuesBody(const float* __restrict x, int64_t length,
                                    float* __restrict y, float* __restrict s,
                                    float* __restrict above) {
  const GeluGrid<float> grid = gelu_grid<float>(16);
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) {
    const Gelu<float> value = gelu_of(x[i], grid);
    y[i] = value.y;
    s[i] = value.s;
    above[i] = value.above;
  }
}

MEMONGER_INLINE void GeluHalfBytesBody(const float* rounded, const float* s, const float* above,
                                   int64_t length, uint8_t* __restrict bytes) {
  const GeluGrid<float> grid = gelu_grid<float>(16);
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) {
    bytes[i] = static_cast<uint8_t>(gelu_byte(rounded[i], s[i], above[i], grid));
  }
}

MEMONGER_INLINE void GeluHalfBackwardBody(const float* g, const float* y,
                                      const uint8_t* __restrict bytes, int64_t length, float* to) {
  const GeluGrid<float> grid = gelu_grid<float>(16);
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) to[i] = g[i] * gelu_slope(y[i], bytes[i], grid);
}

}  // namespace

#define MEMONGER_GELU(A)                                                                    \
  MEMONGER_WITH_WIDEST(GeluForward, (const A* x, int64_t length, A* y, uint8_t* bytes),         \
                       (x, length, y, bytes))                                               \
  MEMONGER_WITH_WIDEST(GeluBackward, (const A* g, const A* y, const uint8_t* bytes,             \
                                  int64_t length, bool add, A* to),                         \
                       (g, y, bytes, length, add, to))
MEMONGER_GELU(float)
MEMONGER_GELU(double)
#undef MEMONGER_GELU
MEMONGER_WITH_WIDEST(GeluHalfValues,
                     (const float* x, int64_t length, float* y, float* s, float* above),
                     (x, length, y, s, above))
MEMONGER_WITH_WIDEST(GeluHalfBytes, (const float* rounded, const float* s, const float* above,
                                 int64_t length, uint8_t* bytes),
                     (rounded, s, above, length, bytes))
MEMONGER_WITH_WIDEST(GeluHalfBackward, (const float* g, const float* y, const uint8_t* bytes,
                                    int64_t length, float* to),
                     (g, y, bytes, length, to))

}  // namespace ops
}  // namespace memonger
