// Gelu, and its derivative made of its output and one byte. The CPU code (output_gelu.cc) includes
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
// These are wrong by at most 1.2e-5, 55 units in float32. All polynomials are minimax fits in
// Horner's form, the highest power first; forward's are wrong by 1e-8 before rounding. A is float
// or double.
#ifndef MEMONGER_GELU_INLINE
#define MEMONGER_GELU_KERNELS
#define MEMONGER_GELU_INLINE __device__ __forceinline__
#include "real.cuh"

__device__ __forceinline__ float gelu_sqrt(float value) { return sqrtf(value); }
__device__ __forceinline__ double gelu_sqrt(double value) { return sqrt(value); }
__device__ __forceinline__ float gelu_abs(float value) { return fabsf(value); }
__device__ __forceinline__ double gelu_abs(double value) { return fabs(value); }
// value * 2^n, n being in the last bits of `shifted`.
__device__ __forceinline__ float gelu_raised(float value, float shifted) {
  return __int_as_float(__float_as_int(value) + (__float_as_int(shifted) << 23));
}
__device__ __forceinline__ double gelu_raised(double value, double shifted) {
  return __longlong_as_double(__double_as_longlong(value) + (__double_as_longlong(shifted) << 52));
}
// value * scale + shift rounded to an integer, and back; there may be a multiple of 128 between.
__device__ __forceinline__ int gelu_round(float value, float scale, int shift) {
  return (int)rintf(value * scale) + shift;
}
__device__ __forceinline__ int gelu_round(double value, double scale, int shift) {
  return (int)rint(value * scale) + shift;
}
template <class A>
__device__ __forceinline__ A gelu_real(int rounded) {
  return (A)rounded;
}
// What is not needed may be skipped.
__device__ __forceinline__ bool gelu_any(bool needed) { return needed; }
#endif

#define MEMONGER_HORNER4(m, a, b, c, d) (((A(a) * (m) + A(b)) * (m) + A(c)) * (m) + A(d))
#define MEMONGER_HORNER5(m, a, b, c, d, e) (MEMONGER_HORNER4(m, a, b, c, d) * (m) + A(e))
#define MEMONGER_HORNER6(m, a, b, c, d, e, f) (MEMONGER_HORNER5(m, a, b, c, d, e) * (m) + A(f))
#define MEMONGER_HORNER7(m, a, b, c, d, e, f, g) \
  (MEMONGER_HORNER6(m, a, b, c, d, e, f) * (m) + A(g))

template <class A>
MEMONGER_GELU_INLINE bool gelu_negative(A x) {
  return x < A(0);
}
template <class A>
MEMONGER_GELU_INLINE A gelu_select(bool condition, A yes, A no) {
  return condition ? yes : no;
}
MEMONGER_GELU_INLINE int gelu_byte(int units, bool left) {
  return (units & 127) + (left ? 128 : 0);
}
MEMONGER_GELU_INLINE bool gelu_left(int byte) { return (byte & 128) != 0; }

// How the numbers lie that y is rounded to, next to the minimum: `least` is one of them. There y is
// least + min(stretch * s^2 + rest, s^2 + most). In float32 that is above the truth by up to a
// third of the distance of two numbers, and rounded, no y stands for more than 5.5e-5 of |s|
// (8.4e-5 for y rounded correctly). The middle of what y stands for is the root of the larger one
// of y - least - above and (y - least) * share + first. Up to `fine` the scale is lower, so that y
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
    grid = {A(-0.16997121274471283),
            A(2.49e-9),
            A(1.64),
            A(1.019e-8),
            A(1.08e-8),
            A(0.405),
            A(7.6e-10),
            A(2.38e6),
            A(4.6e6),
            A(-0.16996991)};
  } else if (bits == 16) {
    grid = {half, half_rest, A(1), half_rest, half_rest, A(0), A(0), A(9300), A(9300), A(0)};
  }
  return grid;
}

// 2^x for -126 < x <= 0 with an error of 2e-9. CUDA's exp2f, two units off, is not good enough for
// the 64 units that a byte allows.
template <class A>
MEMONGER_GELU_INLINE A gelu_exp2(A x) {
  const A to_integer = sizeof(A) == 4 ? A(12582912.0) : A(6755399441055744.0);
  const A shifted = x + to_integer, f = x - (shifted - to_integer);
  const A p = MEMONGER_HORNER7(f, 1.534581194e-04, 1.339993122e-03, 9.618488957e-03,
                               5.550328777e-02, 2.402264689e-01, 6.931472057e-01, 1.000000001e+00);
  return gelu_raised(p, shifted);
}

// With t = |x|, or less where Phi(-t) is nothing: t, Phi(-t) and gelu's derivative at -t.
template <class A>
struct GeluTail {
  A t, share, slope;
};

template <class A>
MEMONGER_GELU_INLINE GeluTail<A> gelu_tail(A size) {
  // Phi(-t) = exp(-t * t / 2) * ratio
  const A t = gelu_select(size < A(12), size, A(12));
  const A power = gelu_exp2(A(-0.72134752044448170) * t * t), z = t / (A(3.6) + t);
  const A ratio =
      MEMONGER_HORNER7(z, -1.099095349e-01, 2.426071548e-01, 1.592318428e-01, -1.159352774e+00,
                       1.803733986e+00, -1.436190500e+00, 4.999999936e-01);
  return {t, power * ratio, power * (ratio - A(0.3989422804014327) * t)};
}

template <class A, class Byte>
struct Gelu {
  A y;
  Byte byte;  // for y as it is stored
};

template <class Byte, class A>
MEMONGER_GELU_INLINE Gelu<A, Byte> gelu_of(A x, const GeluGrid<A>& grid) {
  const GeluTail<A> tail = gelu_tail(gelu_abs(x));
  const auto negative = gelu_negative(x);
  A d = gelu_select(negative, tail.slope, A(1) - tail.slope);
  // For infinity itself on the right, but NaN on the left, as in MXNet.
  A y = gelu_select(negative, A(0) * x, x) - tail.t * tail.share;
  A scale = grid.fine_scale;
  // Next to the minimum the distance gives y - least to more digits. Of the 64 units 42 are lost
  // where this ends, to rounding and to what backward takes off below; farther up it would be less.
  const auto near = y < A(-0.16996320747990369);
  if (gelu_any(near)) {
    const A e = (x - A(-0.75179153680801392)) - A(1.2114449443600961e-8);
    const A slope = e * (A(3.8828088e-01) * e + A(4.314935e-01));
    const A square = e * e * (A(1.2942751e-01) * e + A(2.1574686e-01));
    const A slow = grid.stretch * square + grid.rest, fast = square + grid.most;
    d = gelu_select(near, slope, d);
    y = gelu_select(near, grid.least + gelu_select(slow < fast, slow, fast), y);
    scale = gelu_select(y < grid.fine, grid.scale, scale);
  }
  return {y, gelu_byte(gelu_round(d, scale, 0), x < A(-0.75179152469356447))};
}

// The derivative to 1.2e-5, where the output was y.
template <class A, class Mask>
MEMONGER_GELU_INLINE A gelu_about(A y, Mask is_left, const GeluGrid<A>& grid) {
  const A bounded = gelu_select(y < A(4.9), y, A(4.9)), v = bounded - grid.least;
  const A middle = v - grid.above, lowest = v * grid.share + grid.first;
  const A s = gelu_sqrt(gelu_select(middle > lowest, middle, lowest));
  const A low = s * MEMONGER_HORNER6(s, 1.308179703e-01, -3.972868844e-01, 6.786383877e-01,
                                     -1.459624203e+00, 1.199460339e+00, 9.287289190e-01);
  const A p = A(1) - bounded * A(1.0 / 6), p2 = p * p, p4 = p2 * p2;
  const A high = A(1) + p4 * p4 *
                            MEMONGER_HORNER5(p, 2.344637902e+02, -5.363836673e+02, 4.333227772e+02,
                                             -1.499802392e+02, 2.208213119e+01);
  const A q = gelu_sqrt(gelu_sqrt(gelu_select(y < A(0), -y, A(0))));
  const A of_q =
      MEMONGER_HORNER4(q, 8.077271548e+00, -2.167795217e+01, 1.798804411e+01, -6.198720793e+00);
  const A of_s =
      MEMONGER_HORNER4(q, -2.018164510e+01, 4.867340269e+01, -4.337587044e+01, 1.502942948e+01);
  const A left = (q * s) * (s * of_s + of_q), right = gelu_select(y < A(1.7), low, high);
  return gelu_select(is_left, left, right);
}

// The derivative where the output was y.
template <class A, class Byte>
MEMONGER_GELU_INLINE A gelu_slope(A y, Byte byte, const GeluGrid<A>& grid) {
  const A about = gelu_about(y, gelu_left(byte), grid);
  A scale = grid.fine_scale, unit = A(1) / grid.fine_scale;
  const auto fine = y < grid.fine;
  if (gelu_any(fine)) {
    scale = gelu_select(fine, grid.scale, scale);
    unit = gelu_select(fine, A(1) / grid.scale, unit);
  }
  const Byte begin = gelu_round(about, scale, -64);
  // NaN for NaN and infinity, as in MXNet.
  return gelu_real<A>(begin + ((byte - begin) & 127)) * unit + y * A(0);
}

#ifdef MEMONGER_GELU_KERNELS
struct Bytes {
  alignas(kElements) Byte byte[kElements];
};

// What is added to an output would not be an output of gelu: it is written.
extern "C" __global__ void gelu_forward(const Real* x, Real* y, Byte* bytes, Index count) {
  const Index first = (Index)thread_index() * kElements;
  if (first >= count) return;
  const int inside = inside_of(first, count);
  const GeluGrid<Value> grid = gelu_grid<Value>(REAL_BITS);
  Eight eight = load_eight(x + first, inside);
  Bytes all;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const Gelu<Value, int> value = gelu_of<int>(eight.value[i], grid);
    eight.value[i] = value.y;
    all.byte[i] = (Byte)value.byte;
  }
  put_values(y + first, inside, kWrite, eight);
  if (inside == kElements && copy_aligned<kElements>(bytes + first, &all, bytes + first)) return;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    if (i < inside) bytes[first + i] = all.byte[i];
  }
}

extern "C" __global__ void gelu_backward(const Real* dy, const Real* y, const Byte* bytes, Real* dx,
                                         Index count, int request) {
  const Index first = (Index)thread_index() * kElements;
  if (first >= count) return;
  const int inside = inside_of(first, count);
  const GeluGrid<Value> grid = gelu_grid<Value>(REAL_BITS);
  Eight eight = load_eight(dy + first, inside);
  const Eight output = load_eight(y + first, inside);
  Bytes all;
  if (inside < kElements || !copy_aligned<kElements>(&all, bytes + first, bytes + first)) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) all.byte[i] = i < inside ? bytes[first + i] : (Byte)0;
  }
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    eight.value[i] *= gelu_slope(output.value[i], (int)all.byte[i], grid);
  }
  put_values(dx + first, inside, request, eight);
}
#endif
