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

#include "ops/delegates/delegate.h"
#include "ops/frame/common.h"
#include "ops/frame/operator.h"
#include "ops/frame/params.h"
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
class Indices {  // of one row; `kNone` for a window without a maximum
 public:
  Indices(I* data, int64_t row, const Windows& windows, Width width)
      : nibble_(width == kNibble),
        none_(nibble_          ? 15
              : sizeof(I) == 1 ? 255
                               : -1),
        row_(data + row * (nibble_ ? (windows.RowSize() + 1) / 2 : windows.RowSize())) {}
  void Put(int64_t i, int32_t value) {
    if (value < 0) value = none_;
    if (!nibble_) {
      row_[i] = static_cast<I>(value);
    } else if (i & 1) {
      row_[i >> 1] = static_cast<I>(row_[i >> 1] | value << 4);
    } else {
      row_[i >> 1] = static_cast<I>(value);
    }
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

template <class T, class I>
void PoolForward(const Windows& windows, const TBlob& data, const Requests& request,
                 const Blobs& out) {
  const int64_t share = data.Size() / std::max<int64_t>(windows.Rows(), 1);
  const Width width = WidthOf(windows);
  ForEachRow(windows, data, [&](int64_t row) {
    const T* const x = data.dptr<T>() + row * share;
    T* const y = out[0].dptr<T>() + row * windows.RowSize();
    Indices<I> indices(out[1].dptr<I>(), row, windows, width);
    windows.ForEachWindow([&](const Window& window) {
      for (int64_t channel = 0; channel < windows.ChannelsBehind(); ++channel) {
        T best = Smallest<T>();
        int32_t where = -1;
        windows.ForEachElement(window, channel, [&](int32_t number, int64_t place) {
          const bool above = x[place] > best;  // not where it is NaN
          best = above ? x[place] : best;
          where = above ? number : where;
        });
        if (where < 0) {  // the smallest number itself may be there: MXNet's backward would find it
          windows.ForEachElement(window, channel, [&](int32_t number, int64_t place) {
            if (where < 0 && x[place] == best) where = number;
          });
        }
        indices.Put(window.position + channel, where);
        Store(y + window.position + channel, request[0], best);
      }
    });
  });
}

template <class T, class I>
void PoolBackward(const Windows& windows, const Blobs& in, OpReqType request, const TBlob& out) {
  if (request == mxnet::kNullOp) return;
  const int64_t share = out.Size() / std::max<int64_t>(windows.Rows(), 1);
  const Width width = WidthOf(windows);
  const std::vector<int64_t> offsets = windows.Offsets();
  ForEachRow(windows, out, [&](int64_t row) {
    const T* const g = in[0].dptr<T>() + row * windows.RowSize();
    T* const d = out.dptr<T>() + row * share;
    if (request != mxnet::kAddTo) std::fill(d, d + share, T(0));
    const Indices<I> indices(in[1].dptr<I>(), row, windows, width);
    windows.ForEachWindow([&](const Window& window) {
      const int64_t origin = windows.Origin(window);
      for (int64_t channel = 0; channel < windows.ChannelsBehind(); ++channel) {
        const int32_t number = indices.Get(window.position + channel);
        if (number >= 0) d[origin + offsets[number] + channel] += g[window.position + channel];
      }
    });
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
