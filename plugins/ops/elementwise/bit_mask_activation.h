/*
 * Element-wise operators whose gradient is the incoming one, let through or scaled down: what
 * backward must know about an element is one bit.
 *
 * An activation has, for elements of a type T, `bool Passes(T x)` and `T Value(T x, bool passes)`.
 */
#ifndef MEMONGER_OPS_ELEMENTWISE_BIT_MASK_ACTIVATION_H_
#define MEMONGER_OPS_ELEMENTWISE_BIT_MASK_ACTIVATION_H_

#include <string>

#include "ops/elementwise/bits.h"
#include "ops/frame/operator.h"

namespace memonger {
namespace ops {

inline bool BitMaskShape(const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
  if (!SameShape(attrs, in, out)) return false;
  (*out)[1] = Flat(BytesOfBits((*in)[0].Size()));
  return true;
}

// y = activation(x), or that is added, and the mask; y may be x. The mask is written even on
// kNullOp: backward may still come.
template <class T, class A>
void BitMaskForward(A activation, const TBlob& data, const Requests& request, const Blobs& out) {
  const T* x = data.dptr<T>();
  T* y = out[0].dptr<T>();
  uint8_t* mask = out[1].dptr<uint8_t>();
  const int64_t count = data.Size();
  const bool write = request[0] != mxnet::kNullOp, add = request[0] == mxnet::kAddTo;
  ForEach(count, kBitsChunk, count >= kParallelFrom, [=](int64_t begin) {
    const int64_t length = std::min(kBitsChunk, count - begin);
    Vectorised([=] {
      const T* const from = x + begin;
      T* const to = y + begin;
      uint8_t passes[kBitsChunk];
#pragma omp simd
      for (int64_t i = 0; i < length; ++i) passes[i] = activation.Passes(from[i]);
      PackBits(passes, length, mask + begin / 8);
      if (add) {
        for (int64_t i = 0; i < length; ++i)
          to[i] += activation.Value(from[i], activation.Passes(from[i]));
      } else if (write) {
#pragma omp simd
        for (int64_t i = 0; i < length; ++i)
          to[i] = activation.Value(from[i], activation.Passes(from[i]));
      }
    });
  });
}

// d = g where the bit is set, else g * closed.
template <class T>
void BitMaskBackward(const TBlob& gradient, const TBlob& mask, T closed, OpReqType request,
                     const TBlob& result) {
  ScaleByBits(gradient.dptr<T>(), mask.dptr<uint8_t>(), result.Size(), T(1), closed, request,
              result.dptr<T>());
}

// Everything of the two operators that does not depend on what it computes.
inline Operator RegisterBitMaskActivation(const std::string& name, const std::string& text,
                                          mxnet::FCompute forward, mxnet::FCompute backward) {
  const std::string backward_name = "_backward_" + name;
  Operator(backward_name).Inputs(2).Outputs(1).IsBackward().InplaceFirst().Compute(backward);
  return Operator(name)
      .Text(text)
      .Inputs(1)
      .Outputs(2)
      .VisibleOutputs(1)
      .InputNames({"data"})
      .OutputNames({"output", "mask"})
      .InferShape(BitMaskShape)
      .InferType(MaskedType)
      .InplaceFirst()
      .Compute(forward)
      .Gradient({Output(1)}, 1)
      .Argument("data", "Input.");
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_ELEMENTWISE_BIT_MASK_ACTIVATION_H_
