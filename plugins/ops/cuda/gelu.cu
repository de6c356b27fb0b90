// Gelu, and its derivative made of its output and one byte. The CPU code (gelu_pieces.cc) includes
// this file for its mathematics, with MEMONGER_GELU_INLINE and functions of its own.
//
// y = x * Phi(x) falls to its least value at x = -0.7518 and rises from there, so y and one bit
// ("left of it") tell x, and with it the derivative d. Next to the minimum y changes with the
// square of the distance, and a rounded y stands for a whole interval of x. The other seven bits
// of the byte say where in this interval x was. With s = sqrt(y - least), which is analytic in x:
//   right:  d = polynomial of s up to y = 2.2, above that
//           1 + ((8.25 - y) / 6.05)^16 * polynomial of y;
//   left:   d = -q * s * (polynomial of q + s * polynomial of q + s^2 * polynomial of q),
//           q = (-y)^(1/4); s^2 + q^4 is constant, so d is smooth in s and q at both ends, the
//           minimum and minus infinity.
// All polynomials are minimax fits (tools/fit_gelu.py prints them); before rounding y is wrong by
// 2e-9 (7e-9 next to the minimum) and d by 5e-8 at most. They are in Horner's form, the highest
// power first.
#ifndef MEMONGER_GELU_INLINE
#define MEMONGER_GELU_KERNELS
#define MEMONGER_GELU_INLINE __device__ __forceinline__
#include "real.cuh"

__device__ __forceinline__ float gelu_sqrt(float value) { return sqrtf(value); }
__device__ __forceinline__ double gelu_sqrt(double value) { return sqrt(value); }
__device__ __forceinline__ float gelu_abs(float value) { return fabsf(value); }
__device__ __forceinline__ double gelu_abs(double value) { return fabs(value); }
#endif

#define MEMONGER_HORNER2(m, a, b) (A(a) * (m) + A(b))
#define MEMONGER_HORNER4(m, a, b, c, d) \
  (MEMONGER_HORNER2(m, a, b) * (m) + A(c)) * (m) + A(d)
#define MEMONGER_HORNER6(m, a, b, c, d, e, f) \
  ((MEMONGER_HORNER4(m, a, b, c, d)) * (m) + A(e)) * (m) + A(f)
#define MEMONGER_HORNER8(m, a, b, c, d, e, f, g, h) \
  ((MEMONGER_HORNER6(m, a, b, c, d, e, f)) * (m) + A(g)) * (m) + A(h)
#define MEMONGER_HORNER12(m, a, b, c, d, e, f, g, h, i, j, k, l) \
  ((((MEMONGER_HORNER8(m, a, b, c, d, e, f, g, h)) * (m) + A(i)) * (m) + A(j)) * (m) + A(k)) * \
      (m) + A(l)
#define MEMONGER_HORNER15(m, a, b, c, d, e, f, g, h, i, j, k, l, n, o, p)                       \
  (((MEMONGER_HORNER12(m, a, b, c, d, e, f, g, h, i, j, k, l)) * (m) + A(n)) * (m) + A(o)) * \
      (m) + A(p)

// How the numbers lie that y is rounded to, next to the minimum: `least` is one of them. There y is
// least + rest + s^2 + min(stretch * s^2, most). In float32 that is above the truth by up to a
// third of the distance of two numbers, and rounded, no y stands for more than 5.5e-5 of |s| (8.4e-5
// for y rounded correctly). The byte has |s| * scale modulo 128, or |s| * fine_scale where y is
// `fine` or larger; in these units, the inputs of one y begin less than `margin` below the root of
// y - least - root_rest, and end less than 127 behind that. Where the square of this root is
// `enough` or more y alone tells s.
template <class A>
struct GeluGrid {
  A least, rest, stretch, most, root_rest, scale, fine_scale, margin, fine, enough;
};

// `bits` of the stored number: 16, 32 or 64.
template <class A>
MEMONGER_GELU_INLINE GeluGrid<A> gelu_grid(int bits) {
  GeluGrid<A> grid = {A(-0.16997120747990369), A(0), A(0), A(0), A(0), A(1), A(1), A(0),
                      A(-0.16996991), A(-1)};
  if (bits == 32) {
    grid = {A(-0.16997121274471283), A(2.49e-9), A(0.64), A(7.7e-9), A(3.2e-9), A(2.26e6),
            A(1.19e7), A(122), A(-0.16996991), A(1e-2)};
  } else if (bits == 16) {
    grid = {A(-0.169921875), A(-4.933247990368539e-05), A(0), A(0), A(-4.933247990368539e-05),
            A(10900), A(10900), A(76.8), A(-0.1697), A(0.03)};
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
  // |x| times the normal distribution's tail. For infinity 0 on the right, but NaN on the left, as
  // in MXNet.
  const A t = x < A(13) ? gelu_abs(x) : A(13);
  const A p1 = MEMONGER_HORNER12(t, 1.424847456e-08, -2.169150009e-07, 1.673461709e-06,
                                 -5.919384641e-06, 1.785514009e-05, 9.459039160e-06,
                                 2.876759598e-04, 8.956844032e-04, 9.473041468e-03,
                                 4.881113976e-02, 1.087626117e-01, 1.090507730e+00);
  const A p2 = p1 * p1, p4 = p2 * p2;
  const A far = (x < A(0) ? A(0) : x) - t / (p4 * p4);
  // Next to the minimum from the minimum.
  const A u = x + A(0.75179152469356447);
  const A s = u * (MEMONGER_HORNER6(u, 1.500866221e-03, 1.648893575e-03, -1.680074327e-02,
                                    -2.579037208e-02, 1.393240085e-01, 4.644856703e-01));
  const bool near = gelu_abs(u) < A(0.5);
  const A square = s * s, more = grid.stretch * square;
  const A y = near ? grid.least + ((square + grid.rest) + (more < grid.most ? more : grid.most))
                   : far;
  const A size = near ? gelu_abs(s) : A(0);
  const A scale = y < grid.fine ? grid.scale : grid.fine_scale;
  const int place = static_cast<int>(size * scale + A(0.5)) & 127;
  return {y, place + (u < A(0) ? 128 : 0)};
}

// The derivative where the output was y.
template <class A>
MEMONGER_GELU_INLINE A gelu_slope(A y, int byte, const GeluGrid<A>& grid) {
  const A bounded = y < A(6.5) ? y : A(6.5), v = (bounded - grid.least) - grid.root_rest;
  const A root = gelu_sqrt(v > A(0) ? v : A(0));  // roots stand outside of selections: for SIMD
  const A scale = y < grid.fine ? grid.scale : grid.fine_scale;
  const A unit = y < grid.fine ? A(1) / grid.scale : A(1) / grid.fine_scale;
  const bool coded = v < grid.enough;
  const A begin = coded ? root * scale : A(0);
  const int first = static_cast<int>(begin > grid.margin ? begin - grid.margin : A(0));
  const A exact = static_cast<A>(first + ((byte - first) & 127)) * unit;
  const A s = coded ? exact : root;
  const A low = MEMONGER_HORNER15(
      A(1.299) * s - A(1), 1.231586866e-03, 1.970618299e-03, -2.144817049e-03, -6.250602768e-03,
      -3.964034865e-03, -2.103419237e-03, 1.315920378e-04, 7.845596832e-03, 3.291280678e-02,
      5.203628588e-02, 1.064680413e-01, -2.414231523e-01, -5.220544403e-01, 7.185340506e-01,
      9.180286638e-01);
  const A c = (bounded - A(2.2)) * A(1 / 2.15) - A(1);
  const A p1 = (A(8.25) - bounded) * A(1 / 6.05), p2 = p1 * p1;
  const A p4 = p2 * p2, p8 = p4 * p4;
  const A high = A(1) + (p8 * p8) * (MEMONGER_HORNER8(
      c, 3.352977860e-02, 7.216563872e-02, 1.119294813e-02, 2.806268953e-02, 1.278149482e-01,
      -8.764623323e-03, 1.883730934e-03, 1.442265452e-01));
  const A depth = y < A(0) ? -y : A(0), q = gelu_sqrt(gelu_sqrt(depth));
  const A l = q * A(1 / 0.3211) - A(1);
  const A of_s2 = MEMONGER_HORNER4(l, 2.648567362e-01, 2.464706307e-01, -5.366954347e+00,
                                   1.685256251e+01);
  const A of_s = MEMONGER_HORNER4(l, -3.708911063e-01, 5.313254233e-01, 1.488949237e+00,
                                  -3.518145242e+00);
  const A of_q = MEMONGER_HORNER4(l, 4.392109606e-01, 7.501872338e-01, 1.325513446e+00,
                                  -1.066641253e+00);
  // Next to the minimum this holds on the right too, and low's rounding is too much.
  const A side = static_cast<A>(byte >> 7), negative = s - A(2) * side * s;
  const A left = (q * negative) * ((of_s2 * negative - of_s) * negative + of_q);
  const A weight = y < grid.fine ? A(1) : side;
  const A right = y < A(2.2) ? low : high;
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
