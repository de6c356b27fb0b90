/*
 * memonger_mask_dropout: Dropout that keeps one bit a mask element instead of a number.
 *
 * Draws exactly the numbers that MXNet's CPU Dropout draws from the same generator (1024 engines,
 * each serving a contiguous stretch), so that with one seed and one resource both give the same
 * result. The first byte of the mask says whether forward dropped anything at all: in inference,
 * or with p = 0, gradients pass unchanged.
 */
#include <mxnet/random_generator.h>

#include "./common.h"
#include "./lanes.h"
#include "./operator.h"
#include "./params.h"
#include "./register.h"

namespace memonger {
namespace ops {

namespace {

bool Shape(const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
  if (!SameShape(attrs, in, out)) return false;
  const auto& param = nnvm::get<MaskDropoutParam>(attrs.parsed);
  (*out)[1] = Flat(1 + BytesOfBits(MaskShape((*in)[0], param.axes).Size()));
  return true;
}

bool Type(const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
  if (!SameRealType(attrs, in, out)) return false;
  (*out)[1] = mshadow::kUint8;
  return true;
}

// The data as runs over which the mask is contiguous or constant: axes that share or do not share
// a mask element are merged with their neighbours of the same kind.
struct Runs {
  int64_t length = 1;     // elements of a run
  bool constant = false;  // one mask element serves the run
  std::vector<std::pair<int64_t, int64_t>> outer;  // size and mask stride, last one fastest

  Runs(const TShape& data, const TShape& mask) {
    int axis = data.ndim() - 1;
    const auto shared = [&](int a) { return mask[a] == 1 && data[a] != 1; };
    while (axis >= 0 && data[axis] == 1) --axis;
    int64_t stride = 1;
    if (axis >= 0) {
      constant = shared(axis);
      for (; axis >= 0 && (shared(axis) == constant || data[axis] == 1); --axis) {
        length *= data[axis];
      }
      if (!constant) stride = length;
    }
    for (; axis >= 0; --axis) {
      const int64_t step = mask[axis] == 1 ? 0 : stride;
      stride *= mask[axis];
      if (!outer.empty() && step == outer[0].first * outer[0].second) {
        outer[0].first *= data[axis];
      } else if (data[axis] != 1) {
        outer.insert(outer.begin(), {data[axis], step});
      }
    }
  }
  int64_t MaskOf(int64_t run) const {
    int64_t position = 0;
    for (size_t i = outer.size(); i-- > 1; run /= outer[i].first) {
      position += run % outer[i].first * outer[i].second;
    }
    return outer.empty() ? 0 : position + run * outer[0].second;
  }
};

// MXNet's order of drawing: engine k serves elements [k * step, (k + 1) * step).
template <class T>
void Draw(const OpContext& context, int64_t count, float keep, bool inclusive, uint8_t* bits) {
  using Generator = mxnet::common::random::RandGenerator<mxnet::cpu, T>;
  constexpr int64_t kEngines = 1024, kPerEngine = 64;
  Generator* generator = context.requested[0].get_parallel_random<mxnet::cpu, T>();
  const int64_t engines = std::min((count + kPerEngine - 1) / kPerEngine, kEngines);
  const int64_t step = engines ? (count + engines - 1) / engines : 0;
  std::fill(bits, bits + BytesOfBits(count), 0);
#pragma omp parallel for if (count >= kParallelFrom)
  for (int64_t k = 0; k < engines; ++k) {
    typename Generator::Impl engine(generator, static_cast<int>(k));
    const int64_t begin = k * step, end = std::min(begin + step, count);
    for (int64_t i = begin, stop; i < end; i = stop) {
      stop = std::min((i | 7) + 1, end);
      unsigned byte = 0;
      for (int64_t j = i; j < stop; ++j) {
        const float number = static_cast<float>(engine.uniform());
        byte |= static_cast<unsigned>(inclusive ? number <= keep : number < keep) << (j & 7);
      }
      if (stop - i == 8) {
        bits[i >> 3] = static_cast<uint8_t>(byte);
      } else {  // a neighbour owns the other bits
        __atomic_fetch_or(bits + (i >> 3), static_cast<uint8_t>(byte), __ATOMIC_RELAXED);
      }
    }
  }
}

// to = from * (mask ? 1 / keep : 0), products as in MXNet.
template <class T>
void Apply(const T* from, const uint8_t* bits, float keep, const TShape& shape,
           const TShape& mask_shape, OpReqType request, T* to) {
  const int64_t count = shape.Size(), mask_count = mask_shape.Size();
  const T open = T(1.0f / keep), closed = T(0.0f * (1.0f / keep));
  const bool add = request == mxnet::kAddTo;
  const Runs runs(shape, mask_shape);
  constexpr int64_t kPiece = 4096;  // long runs are cut, so that one run feeds all threads
  const int64_t length = runs.length, all = length ? count / length : 0;
#pragma omp parallel for collapse(2) if (count >= kParallelFrom)
  for (int64_t run = 0; run < all; ++run) {
    for (int64_t begin = 0; begin < length; begin += kPiece) {
      const int64_t end = std::min(begin + kPiece, length), mask = runs.MaskOf(run);
      const T* x = from + run * length;
      T* y = to + run * length;
      if (runs.constant) {
        const T factor = Bit(bits, mask) ? open : closed;
        int64_t i = begin;
        if (sizeof(T) == sizeof(half_t)) {  // compilers make no SIMD of it
          for (; i + 8 <= end; i += 8) Gate8<T>(x + i, 255, factor, factor, add, y + i);
        }
        for (; i < end && add; ++i) y[i] += T(x[i] * factor);
        for (; i < end && !add; ++i) y[i] = T(x[i] * factor);
        continue;
      }
      int64_t i = begin;
      for (; i + 8 <= end; i += 8) {
        Gate8<T>(x + i, EightBits(bits, mask + i, mask_count), open, closed, add, y + i);
      }
      for (; i < end; ++i) Store(y + i, request, T(x[i] * (Bit(bits, mask + i) ? open : closed)));
    }
  }
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
