/*
 * memonger_gelu: gelu that keeps its output and one byte an element.
 *
 * LeakyReLU(act_type='gelu') keeps its input and its output, and the layer behind it mostly keeps
 * the output as well. cuda/gelu.cu tells how the derivative is made of output and byte. In float64
 * it has the digits of float32, as MXNet's has.
 */
#include <cmath>
#include <cstring>

#include "ops/frame/operator.h"
#include "ops/frame/params.h"
#include "ops/frame/vectors.h"
#include "ops/register.h"

namespace memonger {
namespace ops {
namespace {

// What cuda/gelu.cu needs of a processor, without branches, so that loops become SIMD.
inline float gelu_sqrt(float value) { return std::sqrt(value); }
inline double gelu_sqrt(double value) { return std::sqrt(value); }
inline float gelu_abs(float value) { return std::fabs(value); }
inline double gelu_abs(double value) { return std::fabs(value); }
inline bool gelu_any(bool) { return true; }

template <class To, class From>
inline To Bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// 9 * 2^20: adding it rounds what is between -2^20 and 7 * 2^20 to an integer, which is then in the
// last bits, above a multiple of 128. 9 * 2^49 is to doubles what this is to floats.
constexpr float kRound = 9437184.0f;
inline int gelu_round(float value, float scale, int shift) {
  return static_cast<int>(Bits<uint32_t>(value * scale + (kRound + shift)));
}
inline int gelu_round(double value, double scale, int shift) {
  return static_cast<int>(Bits<uint64_t>(value * scale + (5066549580791808.0 + shift)));
}
template <class A>
inline A gelu_real(int rounded) {
  return rounded;
}
template <>
inline float gelu_real<float>(int rounded) {
  return Bits<float>(static_cast<uint32_t>(rounded)) - kRound;
}

// value * 2^n, n being in the last bits of `shifted`.
inline float gelu_raised(float value, float shifted) {
  return Bits<float>(Bits<uint32_t>(value) + (Bits<uint32_t>(shifted) << 23));
}
inline double gelu_raised(double value, double shifted) {
  return Bits<double>(Bits<uint64_t>(value) + (Bits<uint64_t>(shifted) << 52));
}

#define MEMONGER_GELU_INLINE inline
#include "ops/cuda/gelu.cu"

bool Shape(const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
  if (!SameShape(attrs, in, out)) return false;
  (*out)[1] = (*in)[0];
  return true;
}

// y may be x.
template <class T>
void Gelus(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
           const Blobs& out) {
  using A = Acc<T>;
  if (request[0] == mxnet::kNullOp) return;
  if (request[0] == mxnet::kAddTo) Refuse(attrs, kGeluCannotBeAdded);
  const T* x = in[0].dptr<T>();
  T* y = out[0].dptr<T>();
  uint8_t* bytes = out[1].dptr<uint8_t>();
  ForEachChunk(in[0].Size(), [=](int64_t begin, int64_t length) {
    Vectorised([=] {
      const GeluGrid<A> grid = gelu_grid<A>(8 * sizeof(T));
#pragma omp simd
      for (int64_t i = begin; i < begin + length; ++i) {
        const Gelu<A, int> value = gelu_of<int>(static_cast<A>(x[i]), grid);
        y[i] = static_cast<T>(value.y);
        bytes[i] = static_cast<uint8_t>(value.byte);
      }
    });
  });
}

// in: gradient output bytes. The result may be the memory of the gradient.
template <class T>
void Gradients(const NodeAttrs&, const OpContext&, const Blobs& in, const Requests& request,
               const Blobs& out) {
  using A = Acc<T>;
  const T *g = in[0].dptr<T>(), *y = in[1].dptr<T>();
  const uint8_t* bytes = in[2].dptr<uint8_t>();
  T* d = out[0].dptr<T>();
  const OpReqType how = request[0];
  if (how == mxnet::kNullOp) return;
  ForEachChunk(in[0].Size(), [=](int64_t begin, int64_t length) {
    Vectorised([=] {
      const GeluGrid<A> grid = gelu_grid<A>(8 * sizeof(T));
#pragma omp simd
      for (int64_t i = begin; i < begin + length; ++i) {
        const A slope = gelu_slope(static_cast<A>(y[i]), int{bytes[i]}, grid);
        Store(d + i, how, static_cast<A>(g[i]) * slope);
      }
    });
  });
}

MEMONGER_REAL_COMPUTE(Forward, Gelus, 0)
MEMONGER_REAL_COMPUTE(Backward, Gradients, 0)

}  // namespace

void RegisterOutputGelu() {
  Operator("memonger_gelu")
      .Text(
          "Gelu that keeps its output and one byte an element, where LeakyReLU keeps its input "
          "and its output.")
      .Inputs(1)
      .Outputs(2)
      .VisibleOutputs(1)
      .Parser(ParseParam<GeluParam>)
      .InputNames({"data"})
      .OutputNames({"output", "byte"})
      .InferShape(Shape)
      .InferType(MaskedType)
      .InplaceFirst()
      .Compute(Forward)
      .Gradient({Output(0), Output(1)}, 1)
      .Argument("data", "Input.");
  Operator("_backward_memonger_gelu")
      .Inputs(3)
      .Outputs(1)
      .Parser(ParseParam<GeluParam>)
      .IsBackward()
      .InplaceFirst()
      .Compute(Backward);
}

}  // namespace ops
}  // namespace memonger
