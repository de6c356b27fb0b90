/*
 * memonger_mask_dropout: Dropout that keeps one bit an element instead of a number.
 *
 * Draws exactly the numbers that MXNet's CPU Dropout draws from the same generator (1024 engines,
 * each serving a contiguous stretch), so that with one seed and one resource both give the same
 * result. The first byte of the mask says whether forward dropped anything at all: in inference,
 * or with p = 0, gradients pass unchanged.
 */
#include <mxnet/random_generator.h>

#include <random>
#include <type_traits>

#include "ops/elementwise/bits.h"
#include "ops/frame/operator.h"
#include "ops/frame/params.h"
#include "ops/register.h"

namespace memonger {
namespace ops {

namespace {

bool Shape(const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
  if (!SameShape(attrs, in, out)) return false;
  (*out)[1] = Flat(1 + BytesOfBits((*in)[0].Size()));
  return true;
}

// Draws a number in [0, 1) for each of the elements begin to end - 1; the bit says whether it is at
// most `keep`. The bits are 0 before; other threads may set those of other elements.
template <class T>
void DrawBits(float keep, int64_t begin, int64_t end, std::mt19937* engine, uint8_t* bits) {
  for (int64_t i = begin, stop; i < end; i = stop) {
    stop = std::min((i | 7) + 1, end);
    unsigned byte = 0;
    for (int64_t j = i; j < stop; ++j) {
      std::uniform_real_distribution<T> uniform;
      byte |= static_cast<unsigned>(static_cast<float>(uniform(*engine)) <= keep) << (j & 7);
    }
    if (stop - i == 8) {
      bits[i >> 3] = static_cast<uint8_t>(byte);
    } else {  // a neighbour owns the other bits
      __atomic_fetch_or(bits + (i >> 3), static_cast<uint8_t>(byte), __ATOMIC_RELAXED);
    }
  }
}

// MXNet's order of drawing: engine k serves elements [k * step, (k + 1) * step). Numbers for all
// but float32 are drawn in float64, then rounded to float32.
template <class T>
void Draw(const OpContext& context, int64_t count, float keep, uint8_t* bits) {
  using Drawn = typename std::conditional<std::is_same<T, float>::value, float, double>::type;
  constexpr int64_t kEngines = 1024, kPerEngine = 64;
  constexpr int64_t kDrawsFrom = 2048;  // a number takes longer to draw than to multiply
  auto* engines = static_cast<std::mt19937*>(
      context.requested[0].get_parallel_random<mxnet::cpu, T>()->GetStates());
  const int64_t used = std::min((count + kPerEngine - 1) / kPerEngine, kEngines);
  const int64_t step = used ? (count + used - 1) / used : 0;
  std::fill(bits, bits + BytesOfBits(count), 0);
  ForEach(used, 1, count >= kDrawsFrom, [=](int64_t k) {
    // The loop in which an engine makes its next 624 numbers is the C++ library's.
    Vectorised([=] {
      DrawBits<Drawn>(keep, k * step, std::min((k + 1) * step, count), engines + k, bits);
    });
  });
}

// to = from * (bit ? 1 / keep : 0), products as in MXNet.
template <class T>
void Apply(const T* from, const uint8_t* bits, float keep, int64_t count, OpReqType request,
           T* to) {
  ScaleByBits(from, bits, count, T(1.0f / keep), T(0.0f * (1.0f / keep)), request, to);
}

template <class T>
void Copy(const T* from, int64_t count, OpReqType request, T* to) {
  if (request == mxnet::kAddTo) {
    for (int64_t i = 0; i < count; ++i) to[i] += from[i];
  } else if (from != to) {
    std::copy(from, from + count, to);
  }
}

template <class T>
void DropForward(const MaskDropoutParam& param, const OpContext& context, const TBlob& data,
                 const Requests& request, const Blobs& out) {
  const float keep = 1.0f - param.p;
  uint8_t* mask = out[1].dptr<uint8_t>();
  const bool drops = keep < 1 && (context.is_train || param.mode == kAlways);
  mask[0] = drops;
  if (request[0] == mxnet::kNullOp) return;
  if (!drops) return Copy(data.dptr<T>(), data.Size(), request[0], out[0].dptr<T>());
  Draw<T>(context, data.Size(), keep, mask + 1);
  Apply(data.dptr<T>(), mask + 1, keep, data.Size(), request[0], out[0].dptr<T>());
}

template <class T>
void DropBackward(const MaskDropoutParam& param, const Blobs& in, OpReqType request,
                  const TBlob& out) {
  if (request == mxnet::kNullOp) return;
  const uint8_t* mask = in[1].dptr<uint8_t>();
  if (!mask[0]) return Copy(in[0].dptr<T>(), out.Size(), request, out.dptr<T>());
  Apply(in[0].dptr<T>(), mask + 1, 1.0f - param.p, out.Size(), request, out.dptr<T>());
}

void Forward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
             const Requests& request, const Blobs& out) {
  const auto& param = nnvm::get<MaskDropoutParam>(attrs.parsed);
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       DropForward<T>(param, context, in[0], request, out);)
}

void Backward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
              const Blobs& out) {
  const auto& param = nnvm::get<MaskDropoutParam>(attrs.parsed);
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T,
                       DropBackward<T>(param, in, request[0], out[0]);)
}

}  // namespace

void RegisterMaskDropout() {
  Operator("memonger_mask_dropout")
      .Text(
          "Dropout that keeps one bit an element for backward, where Dropout keeps a mask "
          "as large as its input. Draws the numbers that Dropout draws.")
      .Inputs(1)
      .Outputs(2)
      .Parser(ParseParam<MaskDropoutParam>)
      .VisibleOutputs(1)
      .InputNames({"data"})
      .OutputNames({"output", "mask"})
      .InferShape(Shape)
      .InferType(MaskedType)
      .InplaceFirst()
      .Resources([](const NodeAttrs& attrs) {
        std::vector<ResourceRequest> wanted;
        if (nnvm::get<MaskDropoutParam>(attrs.parsed).p != 0) {
          wanted.emplace_back(ResourceRequest::kParallelRandom);
        }
        return wanted;
      })
      .Compute(Forward)
      .Gradient({Output(1)}, 1)
      .Argument("data", "Input.")
      .Arguments(FieldsOf<MaskDropoutParam>());

  Operator("_backward_memonger_mask_dropout")
      .Inputs(2)
      .Outputs(1)
      .Parser(ParseParam<MaskDropoutParam>)
      .IsBackward()
      .InplaceFirst()
      .Compute(Backward);
}

}  // namespace ops
}  // namespace memonger
