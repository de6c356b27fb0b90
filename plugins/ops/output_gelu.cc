/*
 * memonger_gelu: gelu that keeps its output and one byte an element.
 *
 * LeakyReLU(act_type='gelu') keeps its input and its output, and the layer behind it mostly keeps
 * the output as well. cuda/gelu.cu tells how the derivative is made of output and byte. In float64 it
 * has the digits of float32, as MXNet's has.
 */
#include "./gelu_pieces.h"
#include "./operator.h"
#include "./params.h"
#include "./register.h"

namespace memonger {
namespace ops {
namespace {

bool Shape(const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
  if (!SameShape(attrs, in, out)) return false;
  (*out)[1] = (*in)[0];
  return true;
}

bool Type(const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
  if (!SameRealType(attrs, in, out)) return false;
  (*out)[1] = mshadow::kUint8;
  return true;
}

template <class A>
void ForwardPiece(const A* x, int64_t length, A* y, uint8_t* bytes) {
  GeluForward(x, length, 8 * sizeof(A), y, bytes);
}

void ForwardPiece(const half_t* x, int64_t length, half_t* y, uint8_t* bytes) {
  float value[kPiece];
  for (int64_t i = 0; i < length; ++i) value[i] = x[i];
  GeluForward(value, length, 16, value, bytes);
  for (int64_t i = 0; i < length; ++i) y[i] = half_t(value[i]);
}

template <class A>
void BackwardPiece(const A* g, const A* y, const uint8_t* bytes, int64_t length, bool add, A* d) {
  GeluBackward(g, y, bytes, length, 8 * sizeof(A), add, d);
}

void BackwardPiece(const half_t* g, const half_t* y, const uint8_t* bytes, int64_t length,
                   bool add, half_t* d) {
  float gradient[kPiece], output[kPiece];
  for (int64_t i = 0; i < length; ++i) gradient[i] = g[i];
  for (int64_t i = 0; i < length; ++i) output[i] = y[i];
  GeluBackward(gradient, output, bytes, length, 16, false, gradient);
  for (int64_t i = 0; i < length; ++i) {
    Store(d + i, add ? mxnet::kAddTo : mxnet::kWriteTo, gradient[i]);
  }
}

template <class T>
void Gelus(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
           const Blobs& out) {
  if (request[0] == mxnet::kNullOp) return;
  if (request[0] == mxnet::kAddTo) Refuse(attrs, kGeluCannotBeAdded);
  const T* x = in[0].dptr<T>();
  T* y = out[0].dptr<T>();
  uint8_t* bytes = out[1].dptr<uint8_t>();
  ForEachPiece(in[0].Size(), [=](int64_t begin, int64_t length) {
    ForwardPiece(x + begin, length, y + begin, bytes + begin);
  });
}

// in: gradient output bytes
template <class T>
void Gradients(const NodeAttrs&, const OpContext&, const Blobs& in, const Requests& request,
               const Blobs& out) {
  if (request[0] == mxnet::kNullOp) return;
  const T *g = in[0].dptr<T>(), *y = in[1].dptr<T>();
  const uint8_t* bytes = in[2].dptr<uint8_t>();
  T* d = out[0].dptr<T>();
  const bool add = request[0] == mxnet::kAddTo;
  ForEachPiece(in[0].Size(), [=](int64_t begin, int64_t length) {
    BackwardPiece(g + begin, y + begin, bytes + begin, length, add, d + begin);
  });
}

MEMONGER_REAL_COMPUTE(Forward, Gelus, 0)
MEMONGER_REAL_COMPUTE(Backward, Gradients, 0)

}  // namespace

void RegisterOutputGelu() {
  Operator("memonger_gelu")
      .Text("Gelu that keeps its output and one byte an element, where LeakyReLU keeps its input "
            "and its output.")
      .Inputs(1)
      .Outputs(2)
      .VisibleOutputs(1)
      .Parser(ParseParam<GeluParam>)
      .InputNames({"data"})
      .OutputNames({"output", "byte"})
      .InferShape(Shape)
      .InferType(Type)
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
