/*
 * memonger_mask_dropout: Dropout that keeps one bit a mask element instead of a number.
 *
 * Draws exactly the numbers that MXNet's CPU Dropout draws from the same generator (1024 engines,
 * each serving a contiguous stretch), so that with one seed and one resource both give the same
 * result. The first byte of the mask says whether forward dropped anything at all: in inference,
 * or with p = 0, gradients pass unchanged.
 */
#include <mxnet/random_generator.h>

#include <type_traits>

#include "./common.h"
#include "./draw_bits.h"
#include "./lanes.h"
#include "./mask_bits.h"
#include "./operator.h"
#include "./params.h"
#include "./register.h"

namespace memonger {
namespace ops {

namespace {

bool Shape(const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
  const bool known = SameShape(attrs, in, out);
  const TShape& data = (*in)[0];
  const auto& param = nnvm::get<MaskDropoutParam>(attrs.parsed);
  for (int i = 0; mxnet::ndim_is_known(data) && i < param.axes.ndim(); ++i) {
    if (param.axes[i] >= 0 && param.axes[i] < data.ndim()) continue;
    Refuse(attrs, Words() << "axis " << param.axes[i] << " is out of range for data " << data);
  }
  if (!known) return false;
  (*out)[1] = Flat(1 + BytesOfBits(MaskShape((*in)[0], param.axes).Size()));
  return true;
}

bool Type(const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
  if (!SameRealType(attrs, in, out)) return false;
  (*out)[1] = mshadow::kUint8;
  return true;
}

// MXNet's order of drawing: engine k serves elements [k * step, (k + 1) * step).
template <class T>
void Draw(const OpContext& context, int64_t count, float keep, bool inclusive, uint8_t* bits) {
  constexpr int64_t kEngines = 1024, kPerEngine = 64;
  constexpr int64_t kDrawsFrom = 2048;  // a number takes longer to draw than to multiply
  auto* engines = static_cast<std::mt19937*>(
      context.requested[0].get_parallel_random<mxnet::cpu, T>()->GetStates());
  const Threshold threshold{keep, inclusive, !std::is_same<T, float>::value};
  const int64_t used = std::min((count + kPerEngine - 1) / kPerEngine, kEngines);
  const int64_t step = used ? (count + used - 1) / used : 0;
  std::fill(bits, bits + BytesOfBits(count), 0);
  ForEach(used, 1, count >= kDrawsFrom, [=](int64_t k) {
    DrawBits(threshold, k * step, std::min((k + 1) * step, count), engines + k, bits);
  });
}

// to = from * (mask ? 1 / keep : 0), products as in MXNet.
template <class T>
void Apply(const T* from, const uint8_t* bits, float keep, const TShape& shape,
           const TShape& mask_shape, OpReqType request, T* to) {
  constexpr int64_t kPiece = 4096;
  const int64_t count = shape.Size();
  if (count == 0) return;
  const T open = T(1.0f / keep), closed = T(0.0f * (1.0f / keep));
  const MaskBits mask(shape, mask_shape);
  ForEach(count, kPiece, count >= kParallelFrom, [=, &mask](int64_t begin) {
    const int64_t length = std::min(kPiece, count - begin);
    uint8_t spread[BytesOfBits(kPiece) + 7];
    const uint8_t* own = spread;
    if (mask.OneEach()) {
      own = bits + begin / 8;
    } else {
      mask.Spread(bits, begin, begin + length, spread);
    }
    const int64_t whole = length / 8 * 8;
    GateEights<T>(from + begin, own, whole, open, closed, request == mxnet::kAddTo, to + begin);
    for (int64_t i = whole; i < length; ++i) {
      Store(to + begin + i, request, T(from[begin + i] * (Bit(own, i) ? open : closed)));
    }
  });
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
  const TShape shape = MaskShape(data.shape_, param.axes);
  Draw<T>(context, shape.Size(), keep, param.axes.ndim() == 0, mask + 1);
  Apply<T>(data.dptr<T>(), mask + 1, keep, data.shape_, shape, request[0], out[0].dptr<T>());
}

template <class T>
void DropBackward(const MaskDropoutParam& param, const Blobs& in, OpReqType request,
                  const TBlob& out) {
  if (request == mxnet::kNullOp) return;
  const uint8_t* mask = in[1].dptr<uint8_t>();
  if (!mask[0]) return Copy(in[0].dptr<T>(), out.Size(), request, out.dptr<T>());
  Apply<T>(in[0].dptr<T>(), mask + 1, 1.0f - param.p, out.shape_,
           MaskShape(out.shape_, param.axes), request, out.dptr<T>());
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
      .Text("Dropout that keeps one bit an element for backward, where Dropout keeps a mask "
                "as large as its input. Draws the numbers that Dropout draws.")
      .Inputs(1)
      .Outputs(2)
      .Parser(ParseParam<MaskDropoutParam>)
      .VisibleOutputs(1)
      .InputNames({"data"})
      .OutputNames({"output", "mask"})
      .InferShape(Shape)
      .InferType(Type)
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
