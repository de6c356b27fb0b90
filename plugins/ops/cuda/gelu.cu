// Gelu, and its derivative made of its output and one byte. The CPU code (gelu_pieces.cc) includes
// this file for its mathematics, with MEMONGER_GELU_INLINE and functions of its own.
//
// y = x * Phi(x) falls to its least value at x = -0.7518 and rises from there, so y and one bit
// ("left of it") tell the derivative d. Formulas for d(y) that are exact to float32 take longer
// than gelu itself, and next to the minimum, where y changes with the square of the distance, none
// helps: there a rounded y stands for a whole interval of x. So forward, which has x, computes d as
// well, as a whole number of units (1 / scale), and keeps the last seven bits of this number.
// Backward needs d(y) to 64 units only, from short polynomials, and the seven bits tell the rest.
// With s = sqrt(y - least), which is analytic in x, and q = (-y)^(1/4):
//   right:  d = s * polynomial of s up to y = 1.7, above that 1 + p^8 * polynomial of p,
//           p = 1 - y / 6;
//   left:   d = q * s * (polynomial of q + s * polynomial of q).
// These are wrong by at most 1.2e-5, 55 units in float32. All polynomials are minimax fits
// (tools/fit_gelu.py prints them), in Horner's form, the highest power first; forward's are wrong
// by 1e-8 before rounding.
#ifndef MEMONGER_GELU_INLINE
#define MEMONGER_GELU_KERNELS
#define MEMONGER_GELU_INLINE __device__ __forceinline__
#include "real.cuh"

__device__ __forceinline__ float gelu_sqrt(float value) { return sqrtf(value); }
__device__ __forceinline__ double gelu_sqrt(double value) { return sqrt(value); }
__device__ __forceinline__ float gelu_abs(float value) { return fabsf(value); }
__device__ __forceinline__ double gelu_abs(double value) { return fabs(value); }
__device__ __forceinline__ float gelu_exp2(float value) { return exp2f(value); }
__device__ __forceinline__ double gelu_exp2(double value) { return exp2(value); }
// Rounded to an integer, and back; there may be a multiple of 128 between the two.
__device__ __forceinline__ int gelu_round(float value) { return (int)rintf(value); }
__device__ __forceinline__ int gelu_round(double value) { return (int)rint(value); }
template <class A>
__device__ __forceinline__ A gelu_real(int rounded) { return (A)rounded; }
#endif

#define MEMONGER_HORNER4(m, a, b, c, d) (((A(a) * (m) + A(b)) * (m) + A(c)) * (m) + A(d))
#define MEMONGER_HORNER5(m, a, b, c, d, e) (MEMONGER_HORNER4(m, a, b, c, d) * (m) + A(e))
#define MEMONGER_HORNER6(m, a, b, c, d, e, f) (MEMONGER_HORNER5(m, a, b, c, d, e) * (m) + A(f))
#define MEMONGER_HORNER7(m, a, b, c, d, e, f, g) \
  (MEMONGER_HORNER6(m, a, b, c, d, e, f) * (m) + A(g))

// How the numbers lie that y is rounded to, next to the minimum: `least` is one of them. There y is
// least + min(stretch * s^2 + rest, s^2 + most). In float32 that is above the truth by up to a third
// of the distance of two numbers, and rounded, no y stands for more than 5.5e-5 of |s| (8.4e-5 for
// y rounded correctly). The middle of what y stands for is the root of the larger one of
// y - least - above and (y - least) * share + first. Up to `fine` the scale is lower, so that y
// stands for less than 128 units.
template <class A>
struct GeluGrid {
  A least, rest, stretch, most, above, share, first, scale, fine_scale, fine;
};

// `bits` of the stored number: 16, 32 or 64.
template <class A>
MEMONGER_GELU_INLINE GeluGrid<A> gelu_grid(int bits) {
  const A whole = A(-0.16997120747990369), half = A(-0.169921875), half_rest = whole - half;
  GeluGrid<A> grid = {whole, A(0), A(1), A(0), A(0), A(0), A(0), A(4.6e6), A(4.6e6), A(0)};
  if (bits == 32) {
    grid = {A(-0.16997121274471283), A(2.49e-9), A(1.64), A(1.019e-8), A(1.08e-8), A(0.405),
            A(7.6e-10), A(2.38e6), A(4.6e6), A(-0.16996991)};
  } else if (bits == 16) {
    grid = {half, half_rest, A(1), half_rest, half_rest, A(0), A(0), A(9300), A(9300), A(0)};
  }
  return grid;
}

template <class A>
struct Gelu {
  A y;
  int byte;  // for y as it is stored
};

template <class A>
MEMONGER_GELU_INLINE Gelu<A> gelu_of(A x, const GeluGrid<A>& grid) {
  // Phi(-t) = exp(-t * t / 2) * ratio, and from it y and d.
  const A size = gelu_abs(x), t = size < A(12) ? size : A(12);
  const A power = gelu_exp2(A(-0.72134752044448170) * t * t), z = t / (A(3.6) + t);
  const A ratio = MEMONGER_HORNER7(z, -1.099095349e-01, 2.426071548e-01, 1.592318428e-01,
                                   -1.159352774e+00, 1.803733986e+00, -1.436190500e+00,
                                   4.999999936e-01);
  const A of_negative = power * (ratio - A(0.3989422804014327) * t);
  const A d = x < A(0) ? of_negative : A(1) - of_negative;
  // For infinity itself on the right, but NaN on the left, as in MXNet.
  const A far = (x < A(0) ? A(0) * x : x) - t * (power * ratio);
  // Next to the minimum the slope tells how far above it y is.
  const A d2 = d * d, square = d2 * (A(-3.222191128e+00) * d + A(1.159003536e+00));
  const A slow = grid.stretch * square + grid.rest, fast = square + grid.most;
  const A near = grid.least + (slow < fast ? slow : fast);
  const A y = (d2 < A(1.6e-5)) & (x > A(-1.5)) ? near : far;
  const int units = gelu_round(d * (y < grid.fine ? grid.scale : grid.fine_scale));
  return {y, (units & 127) + (x < A(-0.75179152469356447) ? 128 : 0)};
}

// The derivative where the output was y.
template <class A>
MEMONGER_GELU_INLINE A gelu_slope(A y, int byte, const GeluGrid<A>& grid) {
  const A bounded = y < A(4.9) ? y : A(4.9), v = bounded - grid.least;
  const A middle = v - grid.above, lowest = v * grid.share + grid.first;
  const A s = gelu_sqrt(middle > lowest ? middle : lowest);
  const A low = s * MEMONGER_HORNER6(s, 1.308179654e-01, -3.972868532e-01, 6.786383223e-01,
                                     -1.459624144e+00, 1.199460317e+00, 9.287289217e-01);
  const A p = A(1) - bounded * A(1.0 / 6), p2 = p * p, p4 = p2 * p2;
  const A high = A(1) + p4 * p4 * MEMONGER_HORNER5(p, 2.347787626e+02, -5.371304800e+02,
                                                   4.339812978e+02, -1.502359779e+02,
                                                   2.211900527e+01);
  const A q = gelu_sqrt(gelu_sqrt(y < A(0) ? -y : A(0)));  // outside of selections: for SIMD
  const A of_q = MEMONGER_HORNER4(q, 8.077241362e+00, -2.167789748e+01, 1.798800862e+01,
                                  -6.198712553e+00);
  const A of_s = MEMONGER_HORNER4(q, -2.018156877e+01, 4.867326670e+01, -4.337578392e+01,
                                  1.502940948e+01);
  const A left = (q * s) * (s * of_s + of_q), right = y < A(1.7) ? low : high;
  const A about = byte & 128 ? left : right;
  const A scale = y < grid.fine ? grid.scale : grid.fine_scale;
  const A unit = y < grid.fine ? A(1) / grid.scale : A(1) / grid.fine_scale;
  const int begin = gelu_round(about * scale) - 64;
  // NaN for NaN and infinity, as in MXNet.
  return gelu_real<A>(begin + ((byte - begin) & 127)) * unit + y * A(0);
}

#ifdef MEMONGER_GELU_KERNELS
// One thread an element. What is added to an output would not be an output of gelu: it is written.
extern "C" __global__ void gelu_forward(const Real* x, Real* y, Byte* bytes, Index count) {
  const Index i = thread_index();
  if (i >= count) return;
  const GeluGrid<Value> grid = gelu_grid<Value>(REAL_BITS);
  const Gelu<Value> value = gelu_of(load(x + i), grid);
  store(y + i, value.y);
  bytes[i] = (Byte)value.byte;
}

extern "C" __global__ void gelu_backward(const Real* dy, const Real* y, const Byte* bytes, Real* dx,
                                         Index count, int request) {
  const Index i = thread_index();
  if (i >= count) return;
  const Value slope = gelu_slope(load(y + i), bytes[i], gelu_grid<Value>(REAL_BITS));
  put(dx + i, request, load(dy + i) * slope);
}
#endif
