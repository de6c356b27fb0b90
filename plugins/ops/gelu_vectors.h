/*
 * Gelu of many floats at once, with tables: included by the files that have the instructions
 * (Simd), so that everything here is compiled once with each of them.
 *
 * A table has as many polynomials as a register has lanes, each for its part of the range, and an
 * instruction that permutes the lanes finds the right ones: that takes less time than an exponential
 * and three roots, and the derivative comes with the polynomial.
 */
#if !defined(MEMONGER_GELU_FORWARD)
#error "for gelu_avx2.cc and gelu_avx512.cc"
#endif

namespace memonger {
namespace ops {
namespace {

#define MEMONGER_GELU_INLINE MEMONGER_INLINE

// Two vectors, for each has to wait for its own last result. No arrays: compilers would keep those
// in memory.
struct Mask {
  Simd::M a, b;
};

struct Ints {
  Simd::I a, b;
};

struct Floats {
  Simd::V a, b;
  Floats(Simd::V first, Simd::V second) : a(first), b(second) {}
  Floats(const Floats& x) : a(x.a), b(x.b) {}
  Floats& operator=(const Floats& x) {
    a = x.a;
    b = x.b;
    return *this;
  }
  Floats(double value) : a(Simd::All(static_cast<float>(value))), b(a) {}  // NOLINT: as numbers do
};

using F = const Floats&;
MEMONGER_GELU_INLINE Floats operator+(F x, F y) { return {x.a + y.a, x.b + y.b}; }
MEMONGER_GELU_INLINE Floats operator-(F x, F y) { return {x.a - y.a, x.b - y.b}; }
MEMONGER_GELU_INLINE Floats operator*(F x, F y) { return {x.a * y.a, x.b * y.b}; }
MEMONGER_GELU_INLINE Floats operator/(F x, F y) { return {x.a / y.a, x.b / y.b}; }
MEMONGER_GELU_INLINE Mask operator<(F x, F y) {
  return {Simd::Less(x.a, y.a), Simd::Less(x.b, y.b)};
}
MEMONGER_GELU_INLINE Mask gelu_negative(F x) {  // by the sign: -0, too
  return {Simd::Negative(Simd::Bits(x.a)), Simd::Negative(Simd::Bits(x.b))};
}
MEMONGER_GELU_INLINE Floats smaller(F x, F y) { return {Simd::Min(x.a, y.a), Simd::Min(x.b, y.b)}; }
MEMONGER_GELU_INLINE Floats larger(F x, F y) { return {Simd::Max(x.a, y.a), Simd::Max(x.b, y.b)}; }
MEMONGER_GELU_INLINE Floats gelu_abs(F x) { return {Simd::Abs(x.a), Simd::Abs(x.b)}; }
MEMONGER_GELU_INLINE Floats gelu_sqrt(F x) { return {Simd::Sqrt(x.a), Simd::Sqrt(x.b)}; }
MEMONGER_GELU_INLINE Ints bits_of(F x) { return {Simd::Bits(x.a), Simd::Bits(x.b)}; }
MEMONGER_GELU_INLINE Floats gelu_select(const Mask& m, F x, F y) {
  return {Simd::Pick(m.a, x.a, y.a), Simd::Pick(m.b, x.b, y.b)};
}
MEMONGER_GELU_INLINE Mask operator&(const Mask& x, const Mask& y) {
  return {Simd::Both(x.a, y.a), Simd::Both(x.b, y.b)};
}
MEMONGER_GELU_INLINE bool gelu_any(const Mask& m) {
  return __builtin_expect(Simd::Any(Simd::Either(m.a, m.b)), false);
}
MEMONGER_GELU_INLINE Ints operator+(const Ints& x, const Ints& y) {
  return {Simd::Add(x.a, y.a), Simd::Add(x.b, y.b)};
}
MEMONGER_GELU_INLINE Ints operator-(const Ints& x, const Ints& y) {
  return {Simd::Sub(x.a, y.a), Simd::Sub(x.b, y.b)};
}
MEMONGER_GELU_INLINE Ints operator&(const Ints& x, int bits) {
  return {Simd::And(x.a, Simd::All(bits)), Simd::And(x.b, Simd::All(bits))};
}
MEMONGER_GELU_INLINE Ints gelu_byte(const Ints& units, const Mask& left) {
  const Ints low = units & 127;
  return {Simd::Or(low.a, left.a, 128), Simd::Or(low.b, left.b, 128)};
}
MEMONGER_GELU_INLINE Mask gelu_left(const Ints& byte) {
  return {Simd::HasBit7(byte.a), Simd::HasBit7(byte.b)};
}

MEMONGER_GELU_INLINE Ints gelu_round(F value, F scale, int shift) {
  return bits_of(value * scale + Floats(kGeluRound + shift));
}
template <class A>
MEMONGER_GELU_INLINE A gelu_real(const Ints& rounded) {
  return Floats(Simd::FromBits(rounded.a), Simd::FromBits(rounded.b)) - Floats(kGeluRound);
}

#include "./cuda/gelu.cu"

// Which polynomial of a table, rounded(place), and its argument, place - rounded(place).
struct Place {
  Ints row;
  Floats u;
};

MEMONGER_GELU_INLINE Place find(const Floats& place) {
  const Floats shift = 12582912.0, rounded = place + shift;  // 1.5 * 2^23
  return {bits_of(rounded), place - (rounded - shift)};
}

MEMONGER_GELU_INLINE Floats look_up(const float* column, const Ints& row) {
  return {Simd::LookUp(column, row.a), Simd::LookUp(column, row.b)};
}

template <>
MEMONGER_GELU_INLINE GeluTail<Floats> gelu_tail(Floats size) {
  const Floats t = smaller(size, Floats(kTailEnd)), place = t * Floats(kTailRows);
  const Place at = find(place);
  Floats share = look_up(kTail[0], at.row), rise = share;
  share = share * at.u + look_up(kTail[1], at.row);
  for (int i = 2; i <= kTailDegree; ++i) {  // Horner's scheme, and its derivative
    rise = rise * at.u + share;
    share = share * at.u + look_up(kTail[i], at.row);
  }
  return {t, share, place * rise + share};
}

// Lower, so that few numbers are: 40 units, for this gelu_about is closer.
template <>
MEMONGER_GELU_INLINE Floats gelu_near(Floats) { return -0.16996970747990369; }

template <>
MEMONGER_GELU_INLINE Floats gelu_about(Floats y, Mask left, const GeluGrid<Floats>& grid) {
  const Floats v = smaller(y, Floats(kTop)) - grid.least;
  const Floats square = larger(v - grid.above, v * grid.share + grid.first);
  const Mask high = left & (Floats(kHigh) < y);
  const Floats root = gelu_sqrt(gelu_select(high, gelu_abs(y) * Floats(kStretch), square));
  const Floats first = gelu_select(high, Floats(kFirstHigh),
                                   gelu_select(left, Floats(kFirstLeft), Floats(-0.5)));
  const Place at = find(root * Floats(kSlopeRows) + first);
  Floats slope = look_up(kSlope[0], at.row);
  for (int i = 1; i <= kSlopeDegree; ++i) slope = slope * at.u + look_up(kSlope[i], at.row);
  return slope;
}

constexpr int kWidth = Simd::kWidth, kFloats = 2 * kWidth;

MEMONGER_GELU_INLINE Floats load(const float* from) {
  return {Simd::Load(from), Simd::Load(from + kWidth)};
}
MEMONGER_GELU_INLINE Ints load(const uint8_t* from) {
  return {Simd::LoadBytes(from), Simd::LoadBytes(from + kWidth)};
}
MEMONGER_GELU_INLINE void put(float* to, F x) {
  Simd::Put(to, x.a);
  Simd::Put(to + kWidth, x.b);
}

MEMONGER_GELU_INLINE void forward_block(const float* x, const GeluGrid<Floats>& grid, float* y,
                                        uint8_t* bytes) {
  const Gelu<Floats, Ints> value = gelu_of<Ints>(load(x), grid);
  put(y, value.y);
  Simd::PutBytes(bytes, value.byte.a, value.byte.b);
}

MEMONGER_GELU_INLINE void backward_block(const float* g, const float* y, const uint8_t* bytes,
                                         const GeluGrid<Floats>& grid, bool add, float* to) {
  const Floats d = load(g) * gelu_slope(load(y), load(bytes), grid);
  put(to, add ? load(to) + d : d);
}

}  // namespace

void MEMONGER_GELU_FORWARD(const float* x, int64_t length, int bits, float* y, uint8_t* bytes) {
  const GeluGrid<Floats> grid = gelu_grid<Floats>(bits);
  int64_t i = 0;
  for (; i + kFloats <= length; i += kFloats) forward_block(x + i, grid, y + i, bytes + i);
  if (i == length) return;
  float part[kFloats] = {};
  uint8_t part_bytes[kFloats];
  const size_t rest = (length - i) * sizeof(float);
  std::memcpy(part, x + i, rest);
  forward_block(part, grid, part, part_bytes);
  std::memcpy(y + i, part, rest);
  std::memcpy(bytes + i, part_bytes, length - i);
}

void MEMONGER_GELU_BACKWARD(const float* g, const float* y, const uint8_t* bytes, int64_t length,
                            int bits, bool add, float* to) {
  const GeluGrid<Floats> grid = gelu_grid<Floats>(bits);
  int64_t i = 0;
  for (; i + kFloats <= length; i += kFloats) {
    backward_block(g + i, y + i, bytes + i, grid, add, to + i);
  }
  if (i == length) return;
  float part_g[kFloats] = {}, part_y[kFloats] = {}, part[kFloats] = {};
  uint8_t part_bytes[kFloats] = {};
  const size_t rest = (length - i) * sizeof(float);
  std::memcpy(part_g, g + i, rest);
  std::memcpy(part_y, y + i, rest);
  std::memcpy(part_bytes, bytes + i, length - i);
  if (add) std::memcpy(part, to + i, rest);
  backward_block(part_g, part_y, part_bytes, grid, add, part);
  std::memcpy(to + i, part, rest);
}

}  // namespace ops
}  // namespace memonger
