// Gelu, and its derivative made of its output and one byte. The CPU code (gelu_pieces.cc) includes
// this file for its mathematics, with MEMONGER_GELU_INLINE, gelu_exp and gelu_sqrt of its own.
//
// y = x * Phi(x) falls to its least value at x = -0.7518 and rises from there, so y and one bit
// ("left of it") tell x, and with it the derivative d. Next to the minimum y changes with the
// square of the distance, and a rounded y stands for a whole interval of x. The other seven bits
// of the byte say where in this interval x was. With s = sqrt(y - least), which is analytic in x:
//   right:  d = polynomial of s below s = 1, of y up to 2.4, above that
//           1 + ((8.25 - y) / 5.85)^16 * polynomial of y;
//   left:   d = -q * s * (polynomial of q + s * polynomial of q), q = (-y)^(1/4); s^2 + q^4 is
//           constant, so d is smooth in s and q at both ends, the minimum and minus infinity.
// All polynomials are minimax fits (tools/fit_gelu.py prints them); before rounding d is wrong by
// 3e-8 at most. They are in Horner's form, the highest power first.
#ifndef MEMONGER_GELU_INLINE
#define MEMONGER_GELU_KERNELS
#define MEMONGER_GELU_INLINE __device__ __forceinline__
#include "real.cuh"

__device__ __forceinline__ float gelu_exp(float value) { return expf(value); }
__device__ __forceinline__ double gelu_exp(double value) { return exp(value); }
__device__ __forceinline__ float gelu_sqrt(float value) { return sqrtf(value); }
__device__ __forceinline__ double gelu_sqrt(double value) { return sqrt(value); }
#endif

#define MEMONGER_HORNER2(m, a, b) (A(a) * (m) + A(b))
#define MEMONGER_HORNER4(m, a, b, c, d) \
  (MEMONGER_HORNER2(m, a, b) * (m) + A(c)) * (m) + A(d)
#define MEMONGER_HORNER6(m, a, b, c, d, e, f) \
  ((MEMONGER_HORNER4(m, a, b, c, d)) * (m) + A(e)) * (m) + A(f)
#define MEMONGER_HORNER8(m, a, b, c, d, e, f, g, h) \
  ((MEMONGER_HORNER6(m, a, b, c, d, e, f)) * (m) + A(g)) * (m) + A(h)
#define MEMONGER_HORNER10(m, a, b, c, d, e, f, g, h, i, j) \
  ((MEMONGER_HORNER8(m, a, b, c, d, e, f, g, h)) * (m) + A(i)) * (m) + A(j)

// How the numbers lie that y is rounded to, next to the minimum: `least` is one of them, the
// minimum is least + rest, neighbours are 2 * half apart. The intervals that the first two stand
// for end at s = first and s = second; in them the seven bits divide s, in later ones y.
template <class A>
struct GeluGrid {
  A least, rest, half, first, second;
  A steps;  // 1 / (2 * half); 0 with half = 0: y alone is enough (float64)
};

// `bits` of the stored number: 16, 32 or 64.
template <class A>
MEMONGER_GELU_INLINE GeluGrid<A> gelu_grid(int bits) {
  GeluGrid<A> grid = {A(-0.16997120747990369), A(0), A(0), A(1e-9), A(2e-9), A(0)};
  if (bits == 32) {
    grid = {A(-0.16997121274471283), A(5.26480914420091e-09), A(7.450580596923828e-09),
            A(4.675223473507e-05), A(1.307169944826e-04), A(67108864)};
  } else if (bits == 16) {
    grid = {A(-0.169921875), A(-4.933247990368539e-05), A(6.103515625e-05),
            A(1.050560022815e-02), A(1.524591580239e-02), A(8192)};
  }
  return grid;
}

template <class A>
struct Gelu {
  A y;
  A s;  // the signed square root of y - minimum next to the minimum, of the same sign elsewhere
  A above;  // y - minimum, exactly
};

template <class A>
MEMONGER_GELU_INLINE Gelu<A> gelu_of(A x, const GeluGrid<A>& grid) {
  // |x| times the normal distribution's tail; what is beyond 13 cannot be seen.
  const A size = x < A(0) ? -x : x, t = size < A(13) ? size : A(13);
  const A k = A(1) / (A(0.35) * t + A(1));
  const A mills = MEMONGER_HORNER8(k, -2.910888438e-02, 1.437879943e-01, -2.553267999e-01,
                                   1.587214737e-01, -2.279037916e-02, 1.053690414e-01,
                                   1.198691272e-01, 1.398566993e-01);
  const A tail = t * gelu_exp(t * t * A(-0.5)) * ((mills * k + A(1.396217117e-01)) * k);
  const A positive = x > A(0) ? x : A(0), negative = x > A(0) ? A(0) : x;
  // A product with zero that is NaN for NaN and for minus infinity, as in MXNet.
  const A far = positive - (size < A(13) ? tail : A(0)) + negative * A(0);
  // Next to the minimum from the minimum, the distance in two parts.
  const A u = (x - A(-0.7517915368080139)) - A(1.2114449443600961e-08);
  const A slope = MEMONGER_HORNER8(u, -1.007991176e-04, -6.547806211e-05, 1.550715645e-03,
                                   1.675388479e-03, -1.680825902e-02, -2.579324456e-02,
                                   1.393243306e-01, 4.644857330e-01);
  const A s = u * slope;
  const bool near = u < A(0.25) && u > A(-0.25);
  const A y = near ? grid.least + (s * s + grid.rest) : far;
  return {y, near ? s : u, near ? s * s : (y - grid.least) - grid.rest};
}

// The byte for an output that was rounded to y.
template <class A>
MEMONGER_GELU_INLINE int gelu_byte(A y, A s, A above, const GeluGrid<A>& grid) {
  const A v = (y - grid.least) - grid.rest, size = s < A(0) ? -s : s;
  const A inside = (above - v) * grid.steps + A(0.5);
  const A in_first = size * (A(1) / grid.first);
  const A in_second = (size - grid.first) * (A(1) / (grid.second - grid.first));
  A place = v < A(3) * grid.half - grid.rest ? in_second : inside;
  place = (v < grid.half - grid.rest ? in_first : place) * A(128);
  place = place > A(0) ? place : A(0);
  place = place < A(127) ? place : A(127);
  return static_cast<int>(place) + (s < A(0) ? 128 : 0);
}

// The derivative where the output was y.
template <class A>
MEMONGER_GELU_INLINE A gelu_slope(A y, int byte, const GeluGrid<A>& grid) {
  const A place = (static_cast<A>(byte & 127) + A(0.5)) / A(128);
  const A v = (y - grid.least) - grid.rest;
  const A refined = v + grid.half * (A(2) * place - A(1));
  const A in_first = grid.first * place;
  const A in_second = grid.first + (grid.second - grid.first) * place;
  // Roots stand outside of selections, and the last selection is a sum: so loops become SIMD.
  A square = refined > A(0) ? refined : A(0);
  square = v < A(3) * grid.half - grid.rest ? in_second * in_second : square;
  square = v < grid.half - grid.rest ? in_first * in_first : square;
  const A s = gelu_sqrt(square);
  const A a = A(2) * s - A(1), b = (y - A(1.61475)) * A(1.2734797835084368);
  const A low = s * (MEMONGER_HORNER10(a, 5.129961689e-05, -1.671679801e-04, 4.221651618e-04,
                                       -3.277581911e-04, 3.339815778e-03, -3.355948635e-03,
                                       2.650645283e-02, -2.189514163e-01, 4.556569278e-02,
                                       1.227662033e+00));
  const A middle = MEMONGER_HORNER10(b, 8.015354403e-06, -7.729995103e-06, 2.879449193e-04,
                                     -4.374269222e-04, -1.022200742e-03, -6.282290522e-03,
                                     4.021916843e-02, -4.699412698e-02, -5.781412634e-02,
                                     1.116023341e+00);
  const A bounded = y < A(6.5) ? y : A(6.5);
  const A c = (bounded - A(2.4)) * A(0.48780487804878048) - A(1);
  const A p1 = (A(8.25) - bounded) * A(0.17094017094017094), p2 = p1 * p1;
  const A p4 = p2 * p2, p8 = p4 * p4;
  const A high = A(1) + (p8 * p8) * (MEMONGER_HORNER8(
      c, 1.695639590e-02, 4.927865999e-02, 3.773940049e-02, 3.634153288e-02, 7.718341675e-02,
      7.156250066e-03, 1.175202902e-03, 8.425851685e-02));
  const A depth = y < A(0) ? -y : A(0), q = gelu_sqrt(gelu_sqrt(depth));
  const A l = q * A(3.1142946122703208) - A(1);
  const A left = -(q * s) * ((MEMONGER_HORNER6(
      l, 6.412026650e-02, -7.674810595e-02, 7.079994023e-02, -2.119604728e-01, 2.708632120e-01,
      1.329741611e+00)) + s * ((MEMONGER_HORNER6(
      l, -6.661716877e-03, -6.375898271e-02, 1.867110789e-01, -3.895788776e-01, 9.102057218e-01,
      2.900075447e-01)) * l + A(-2.794368532e+00)));
  const A right = y < A(0.8295) ? low : y < A(2.4) ? middle : high;
  const A weight = static_cast<A>(byte >> 7);
  // NaN for NaN and infinity, as in MXNet.
  return weight * left + (A(1) - weight) * right + y * A(0);
}

#ifdef MEMONGER_GELU_KERNELS
// One thread an element. What is added to an output would not be an output of gelu: it is written.
extern "C" __global__ void gelu_forward(const Real* x, Real* y, Byte* bytes, Index count) {
  const Index i = thread_index();
  if (i >= count) return;
  const GeluGrid<Value> grid = gelu_grid<Value>(REAL_BITS);
  const Gelu<Value> value = gelu_of(load(x + i), grid);
  store(y + i, value.y);
  bytes[i] = (Byte)gelu_byte(rounded(value.y), value.s, value.above, grid);
}

extern "C" __global__ void gelu_backward(const Real* dy, const Real* y, const Byte* bytes, Real* dx,
                                         Index count, int request) {
  const Index i = thread_index();
  if (i >= count) return;
  const Value slope = gelu_slope(load(y + i), bytes[i], gelu_grid<Value>(REAL_BITS));
  put(dx + i, request, load(dy + i) * slope);
}
#endif
