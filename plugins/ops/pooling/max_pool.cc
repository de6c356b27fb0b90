/*
 * memonger_max_pool: max pooling that keeps where in its window each maximum was.
 *
 * MXNet's Pooling keeps its input and its output (and, on a CPU, a workspace). Here a window of up
 * to 15 elements costs four bits an output (MONeT's "intermediate-activated" max-pool), up to 255
 * one byte, larger ones four bytes. Attributes, shapes and ties are those of Pooling without
 * MKLDNN: the first maximum of a window in row-major order gets the gradient; a window whose
 * elements are all NaN or -inf has none. Where no gradient can follow, Pooling itself runs.
 */
#include <limits>
#include <memory>

#include "ops/delegates/delegate.h"
#include "ops/frame/common.h"
#include "ops/frame/operator.h"
#include "ops/frame/params.h"
#include "ops/frame/vectors.h"
#include "ops/register.h"

namespace memonger {
namespace ops {

namespace {

void Check(const MaxPoolParam& param) {
  const int axes = param.kernel.ndim();
  if (param.global_pool) return;
  if (axes < 1 || axes > 3) {
    RefuseAttribute(Words() << axes << "D pooling not supported; kernel must have 1 to 3 axes");
  }
  for (int i = 0; i < axes; ++i) {
    if (param.kernel[i] < 1) RefuseAttribute("kernel must be positive");
  }
  for (int i = 0; i < param.stride.ndim(); ++i) {
    if (param.stride[i] < 1) RefuseAttribute("stride must be positive");
  }
  for (int i = 0; i < param.pad.ndim(); ++i) {
    if (param.pad[i] < 0) RefuseAttribute("pad must not be negative");
  }
}

void Parse(NodeAttrs* attrs) {
  ParseParam<MaxPoolParam>(attrs);
  auto& param = nnvm::get<MaxPoolParam>(attrs->parsed);
  Check(param);
  Dictionary attributes = attrs->dict;
  attributes["pool_type"] = "max";
  param.stock = std::make_shared<const Delegate>("Pooling", attrs->name, attributes);
}

bool Shape(const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
  const TShape& data = (*in)[0];
  if (!mxnet::ndim_is_known(data)) return false;
  const int channel = ChannelsLast(nnvm::get<MaxPoolParam>(attrs.parsed)) ? data.ndim() - 1 : 1;
  for (int i = 1; i < data.ndim(); ++i) {
    if (!mxnet::dim_size_is_known(data, i) && i != channel) return false;
  }
  const Windows windows = WindowsOf(attrs, data);
  TShape output = windows.OutputShape();
  MergeShapes(attrs, &output, &(*out)[0]);
  if (!mxnet::shape_is_known(data)) return false;
  const int64_t row = windows.RowSize();  // rows start on a byte, so that threads can share them
  (*out)[1] = Flat(windows.Rows() * (WidthOf(windows) == kNibble ? (row + 1) / 2 : row));
  return true;
}

bool Type(const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
  if (!SameRealType(attrs, in, out)) return false;
  // Type inference does not know shapes: global pooling may need words, so it always gets them.
  const auto& param = nnvm::get<MaxPoolParam>(attrs.parsed);
  int64_t volume = 1;
  for (int i = 0; i < param.kernel.ndim(); ++i) volume *= param.kernel[i];
  (*out)[1] = param.global_pool || volume > 255 ? mshadow::kInt32 : mshadow::kUint8;
  return true;
}

template <class I>
class Indices {  // of one row; `none_` for a window without a maximum
 public:
  Indices(I* data, int64_t row, const Windows& windows, Width width)
      : nibble_(width == kNibble),
        none_(nibble_          ? 15
              : sizeof(I) == 1 ? 255
                               : -1),
        row_(data + row * (nibble_ ? (windows.RowSize() + 1) / 2 : windows.RowSize())) {}
  // All of them; a number below 0 for none.
  void Put(const int32_t* numbers, int64_t size) {
    const int32_t none = none_;
    const auto kept = [=](int64_t i) { return numbers[i] < 0 ? none : numbers[i]; };
    if (!nibble_) {
      for (int64_t i = 0; i < size; ++i) row_[i] = static_cast<I>(kept(i));
      return;
    }
    for (int64_t i = 0; i < size / 2; ++i) {
      row_[i] = static_cast<I>(kept(2 * i) | kept(2 * i + 1) << 4);
    }
    if (size & 1) row_[size / 2] = static_cast<I>(kept(size - 1));
  }
  int32_t Get(int64_t i) const {
    const int32_t value =
        nibble_ ? (row_[i >> 1] >> (4 * (i & 1))) & 15 : static_cast<int32_t>(row_[i]);
    return value == none_ ? -1 : value;
  }

 private:
  const bool nibble_;
  const int32_t none_;
  I* const row_;
};

template <class T>
T Smallest() {
  return -std::numeric_limits<T>::max();
}
template <>
half_t Smallest<half_t>() {
  return half_t::Binary(0xfbff);
}

// work(row) for all rows, on all threads if there is much to do.
template <class Work>
void ForEachRow(const Windows& windows, const TBlob& map, Work work) {
  ForEach(windows.Rows(), 1, map.Size() >= static_cast<size_t>(kParallelFrom), work);
}

template <class T>
struct Maximum {
  T value;
  int32_t number;  // in its window; -1 if there is none
};

template <class T>
Maximum<T> FirstMaximum(const Windows& windows, const Window& window, const T* x) {
  Maximum<T> best = {Smallest<T>(), -1};
  windows.ForEachElement(window, [&](int32_t number, int64_t place) {
    const bool above = x[place] > best.value;  // not where it is NaN
    best.value = above ? x[place] : best.value;
    best.number = above ? number : best.number;
  });
  if (best.number < 0) {  // the smallest number itself may be there: MXNet's backward would find it
    windows.ForEachElement(window, [&](int32_t number, int64_t place) {
      if (best.number < 0 && x[place] == best.value) best.number = number;
    });
  }
  return best;
}

// Windows that are looked at side by side, and fewer than which are faster one by one.
constexpr int kLanes = 64, kFew = 4;
// Wider vectors gather their elements more slowly.
constexpr int kGatheredBits = 256;

// Values and numbers of the maxima in `lanes` windows of a group, from the `begin`th.
template <class T>
void FirstMaxima(const Windows& windows, const AlikeWindows& group, int begin, int lanes,
                 const T* x, T* values, int32_t* numbers) {
  const int32_t* const shifts = group.shifts.data() + begin;
  std::fill(values, values + lanes, Smallest<T>());
  std::fill(numbers, numbers + lanes, -1);
  if (lanes >= kFew) {
    windows.ForEachElement(group.first, [=](int32_t number, int64_t place) {
      const T* const from = x + place;
      Vectorised<kGatheredBits>([=] {
#pragma omp simd
        for (int i = 0; i < lanes; ++i) {
          const T value = from[shifts[i]];
          const bool above = value > values[i];
          // A choice would become a masked store, which some processors do slowly.
          numbers[i] += (number - numbers[i]) & -static_cast<int32_t>(above);
          values[i] = above ? value : values[i];
        }
      });
    });
  }
  for (int i = 0; i < lanes; ++i) {
    if (numbers[i] >= 0) continue;
    const Maximum<T> best = FirstMaximum(windows, group.first, x + shifts[i]);
    values[i] = best.value;
    numbers[i] = best.number;
  }
}

// Outputs of a row, and the number of each one's maximum.
template <class T>
void PoolRow(const Windows& windows, const std::vector<AlikeWindows>& groups, const T* x,
             OpReqType request, T* y, int32_t* maxima) {
  T values[kLanes];
  int32_t numbers[kLanes];
  for (const AlikeWindows& group : groups) {
    const int count = static_cast<int>(group.positions.size());
    for (int begin = 0; begin < count; begin += kLanes) {
      const int lanes = std::min(kLanes, count - begin);
      FirstMaxima(windows, group, begin, lanes, x, values, numbers);
      const int32_t* const positions = group.positions.data() + begin;
      for (int i = 0; i < lanes; ++i) {
        Store(y + positions[i], request, values[i]);
        maxima[positions[i]] = numbers[i];
      }
    }
  }
}

template <class T, class I>
void PoolForward(const Windows& windows, const TBlob& data, const Requests& request,
                 const Blobs& out) {
  const int64_t share = data.Size() / std::max<int64_t>(windows.Rows(), 1);
  const int64_t size = windows.RowSize();
  const Width width = WidthOf(windows);
  const std::vector<AlikeWindows> groups = windows.Groups();
  const OpReqType how = request[0];
  const T* const x = data.dptr<T>();
  T* const y = out[0].dptr<T>();
  I* const kept = out[1].dptr<I>();
  ForEachRow(windows, data, [=, &windows, &groups](int64_t row) {
    const std::unique_ptr<int32_t[]> numbers(new int32_t[size]);
    PoolRow(windows, groups, x + row * share, how, y + row * size, numbers.get());
    Indices<I>(kept, row, windows, width).Put(numbers.get(), size);
  });
}

template <class T, class I>
void PoolBackward(const Windows& windows, const Blobs& in, OpReqType request, const TBlob& out) {
  if (request == mxnet::kNullOp) return;
  const int64_t share = out.Size() / std::max<int64_t>(windows.Rows(), 1);
  const int64_t size = windows.RowSize();
  const Width width = WidthOf(windows);
  const std::vector<int64_t> origins = windows.Origins(), offsets = windows.Offsets();
  const T* const gradient = in[0].dptr<T>();
  I* const kept = in[1].dptr<I>();
  T* const sums = out.dptr<T>();
  ForEachRow(windows, out, [=, &windows, &origins, &offsets](int64_t row) {
    const T* const g = gradient + row * size;
    T* const d = sums + row * share;
    if (request != mxnet::kAddTo) std::fill(d, d + share, T(0));
    const Indices<I> indices(kept, row, windows, width);
    for (int64_t i = 0; i < size; ++i) {
      const int32_t number = indices.Get(i);
      if (number >= 0) d[origins[i] + offsets[number]] += g[i];
    }
  });
}

// MXNet's operator, which has two outputs, too.
const Delegate& Stock(const NodeAttrs& attrs) {
  return *nnvm::get<MaxPoolParam>(attrs.parsed).stock;
}

template <class Array>
void Forward(const NodeAttrs& attrs, const OpContext& context, const std::vector<Array>& in,
             const Requests& request, const std::vector<Array>& out) {
  if (!context.is_train && !context.need_grad) {  // nobody will ask where the maxima were
    Stock(attrs).Run(context, in, request, out);
    return;
  }
  NDArray copy;
  const TBlob data = Plain(context, in[0], &copy);
  const Blobs results{BlobOf(out[0]), BlobOf(out[1])};
  const Windows windows = WindowsOf(attrs, data.shape_);
  MEMONGER_REAL_SWITCH(data.type_flag_, attrs.name, T, {
    if (results[1].type_flag_ == mshadow::kInt32) {
      PoolForward<T, int32_t>(windows, data, request, results);
    } else {
      PoolForward<T, uint8_t>(windows, data, request, results);
    }
  })
}

void Backward(const NodeAttrs& attrs, const OpContext&, const Blobs& in, const Requests& request,
              const Blobs& out) {
  const Windows windows = WindowsOf(attrs, out[0].shape_);
  MEMONGER_REAL_SWITCH(in[0].type_flag_, attrs.name, T, {
    if (in[1].type_flag_ == mshadow::kInt32) {
      PoolBackward<T, int32_t>(windows, in, request[0], out[0]);
    } else {
      PoolBackward<T, uint8_t>(windows, in, request[0], out[0]);
    }
  })
}

}  // namespace

void RegisterMaxPool() {
  Operator("memonger_max_pool")
      .Text(
          "Max pooling that keeps four bits, a byte or four bytes an output for backward, "
          "where Pooling keeps its input and its output.")
      .Inputs(1)
      .Outputs(2)
      .Parser(Parse)
      .VisibleOutputs(1)
      .InputNames({"data"})
      .OutputNames({"output", "indices"})
      .InferShape(Shape)
      .InferType(Type)
      .InferStorage([](const NodeAttrs& attrs, const int device, mxnet::DispatchMode* mode,
                       std::vector<int>* in, std::vector<int>* out) {
        return Stock(attrs).InferStorage(device, mode, in, out);
      })
      .UsesMkldnn()
      .TempSpace()
      .Compute(Forward<TBlob>)
      .ComputeArrays(Forward<NDArray>)
      .Gradient({Output(1)}, 1)
      .Argument("data", "Input.")
      .Arguments(FieldsOf<MaxPoolParam>());

  Operator("_backward_memonger_max_pool")
      .Inputs(2)
      .Outputs(1)
      .Parser(Parse)
      .IsBackward()
      .Compute(Backward);
}

}  // namespace ops
}  // namespace memonger
