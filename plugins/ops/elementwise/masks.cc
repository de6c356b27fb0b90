/*
 * memonger_mask_relu, memonger_mask_leaky_relu and memonger_mask_clip: activations whose gradient
 * is the incoming one, let through or scaled down. What backward must know about an element is one
 * bit.
 *
 * MXNet's relu keeps its output, LeakyReLU (act_type 'leaky') input and output, clip (relu6,
 * hardtanh) its input. In all of them MKLDNN's Activation and LeakyReLU differ from MXNet's own
 * operators at NaN: docs/OPERATORS.md has the table.
 */
#include <string>

#include "ops/elementwise/bits.h"
#include "ops/frame/mkldnn.h"
#include "ops/frame/operator.h"
#include "ops/frame/params.h"
#include "ops/register.h"

namespace memonger {
namespace ops {
namespace {

// ------------------------------------------------------------------ activations
template <class T>
struct Relu {
  bool Passes(T x) const { return !(x <= T(0.0f)); }
  T Value(T x, bool passes) const { return passes ? x : T(0.0f); }
};

// Makes NaN 0, and its gradient that of a negative input.
struct MkldnnRelu : Relu<float> {
  bool Passes(float x) const { return x > 0; }
};

// The product is made in float32 for every dtype, as in MXNet: visible in float64 only.
template <class T>
struct LeakyRelu {
  float slope;
  bool Passes(T x) const { return x > T(0.0f); }
  T Value(T x, bool passes) const { return passes ? x : T(static_cast<float>(x) * slope); }
};

// Lets the gradient of NaN through.
struct MkldnnLeakyRelu : LeakyRelu<float> {
  explicit MkldnnLeakyRelu(float s) : LeakyRelu<float>{s} {}
  bool Passes(float x) const { return !(x <= 0); }
};

// NaN counts as inside.
template <class T>
struct Clip {
  T low, high;
  bool Passes(T x) const { return !(x > high) && !(low > x); }
  T Value(T x, bool passes) const { return passes ? x : x > high ? high : low; }
};

// y = activation(x), or that is added, and the mask; y may be x. The mask is written even on
// kNullOp: backward may still come.
template <class T, class A>
void Activate(A activation, const TBlob& data, const Requests& request, const Blobs& out) {
  const T* x = data.dptr<T>();
  T* y = out[0].dptr<T>();
  uint8_t* mask = out[1].dptr<uint8_t>();
  const int64_t count = data.Size();
  const OpReqType how = request[0];
  ForEach(count, kBitsChunk, count >= kParallelFrom, [=](int64_t begin) {
    const int64_t length = std::min(kBitsChunk, count - begin);
    Vectorised([=] {
      const T* const from = x + begin;
      T* const to = y + begin;
      uint8_t passes[kBitsChunk];
#pragma omp simd
      for (int64_t i = 0; i < length; ++i) passes[i] = activation.Passes(from[i]);
      PackBits(passes, length, mask + begin / 8);
#pragma omp simd
      for (int64_t i = 0; i < length; ++i) {
        Store(to + i, how, activation.Value(from[i], activation.Passes(from[i])));
      }
    });
  });
}

// ------------------------------------------------------------------ operators
void ReluForward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
                 const Blobs& out) {
  if (NanBecomesZero(nnvm::get<MaskReluParam>(attrs.parsed).stands_for, in[0])) {
    return Activate<float>(MkldnnRelu(), in[0], request, out);
  }
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       Activate<T>(Relu<T>(), in[0], request, out);)
}

void LeakyForward(const NodeAttrs& attrs, const OpContext&, const Blobs& in,
                  const Requests& request, const Blobs& out) {
  const float slope = nnvm::get<MaskLeakyReluParam>(attrs.parsed).slope;
  if (MkldnnActivates(in[0])) {
    return Activate<float>(MkldnnLeakyRelu(slope), in[0], request, out);
  }
  MEMONGER_REAL_SWITCH(
      in[0].type_flag_, attrs.name, T,
      Activate<T>(LeakyRelu<T>{static_cast<float>(T(slope))}, in[0], request, out);)
}

void ClipForward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
                 const Blobs& out) {
  const auto& param = nnvm::get<MaskClipParam>(attrs.parsed);
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       Activate<T>(Clip<T>{T(param.a_min), T(param.a_max)}, in[0], request, out);)
}

// d = g where the bit is set, else g * slope. in: gradient mask
void Scale(const NodeAttrs& attrs, const Blobs& in, float slope, OpReqType request,
           const TBlob& out) {
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       ScaleByBits(in[0].dptr<T>(), in[1].dptr<uint8_t>(), out.Size(), T(1.0f),
                                   T(slope), request, out.dptr<T>());)
}

void ReluBackward(const NodeAttrs& attrs, const OpContext&, const Blobs& in,
                  const Requests& request, const Blobs& out) {
  Scale(attrs, in, 0.0f, request[0], out[0]);
}

void LeakyBackward(const NodeAttrs& attrs, const OpContext&, const Blobs& in,
                   const Requests& request, const Blobs& out) {
  Scale(attrs, in, nnvm::get<MaskLeakyReluParam>(attrs.parsed).slope, request[0], out[0]);
}

// Where an element was clipped the gradient is zero, selected and not multiplied, as in MXNet.
void ClipBackward(const NodeAttrs& attrs, const OpContext&, const Blobs& in,
                  const Requests& request, const Blobs& out) {
  const auto asked = nnvm::get<MaskClipParam>(attrs.parsed).GradientRequest(request[0]);
  MEMONGER_REAL_SWITCH(
      in[0].type_flag_, attrs.name, T,
      ForEachBit(in[0].dptr<T>(), in[1].dptr<uint8_t>(), out[0].Size(), asked, out[0].dptr<T>(),
                 [](T value, int bit) { return bit ? value : T(0.0f); });)
}

bool Shape(const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
  if (!SameShape(attrs, in, out)) return false;
  (*out)[1] = Flat(BytesOfBits((*in)[0].Size()));
  return true;
}

template <class Param>
void Register(const std::string& name, const std::string& text, mxnet::FCompute forward,
              mxnet::FCompute backward) {
  Operator(name)
      .Text(text)
      .Inputs(1)
      .Outputs(2)
      .VisibleOutputs(1)
      .Parser(ParseParam<Param>)
      .InputNames({"data"})
      .OutputNames({"output", "mask"})
      .InferShape(Shape)
      .InferType(MaskedType)
      .InplaceFirst()
      .Compute(forward)
      .Gradient({Output(1)}, 1)
      .Argument("data", "Input.")
      .Arguments(FieldsOf<Param>());
  Operator("_backward_" + name)
      .Inputs(2)
      .Outputs(1)
      .Parser(ParseParam<Param>)
      .IsBackward()
      .InplaceFirst()
      .Compute(backward);
}

}  // namespace

void RegisterMasks() {
  Register<MaskReluParam>(
      "memonger_mask_relu",
      "Rectified linear unit max(x, 0) that keeps one bit an element for backward, "
      "where relu keeps its output.",
      ReluForward, ReluBackward);
  Register<MaskLeakyReluParam>(
      "memonger_mask_leaky_relu",
      "Leaky rectified linear unit that keeps one bit an element for backward, where "
      "LeakyReLU keeps its input and its output.",
      LeakyForward, LeakyBackward);
  Register<MaskClipParam>(
      "memonger_mask_clip",
      "Limits values to [a_min, a_max] and keeps one bit an element for backward, where "
      "clip keeps its input. relu6 is a_min=0, a_max=6.",
      ClipForward, ClipBackward);
}

}  // namespace ops
}  // namespace memonger
