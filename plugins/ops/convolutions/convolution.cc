#include "ops/convolutions/convolution.h"

#include <algorithm>

namespace memonger {
namespace ops {

namespace {

constexpr const char* kForward = "Convolution";
constexpr const char* kBackward = "_backward_Convolution";
// For each part MKLDNN walks over the weight, or its gradient, five times to convert and to add
// them: data and output of a part are at least this many times as large.
constexpr int64_t kOfWeight = 8;

bool OnGpu(const OpContext& context) {
  return context.run_ctx.ctx.dev_mask() == mshadow::gpu::kDevMask;
}

// Bias gradients of parts of a batch: the native code's sum must be made of the whole.
OpReqType PartOfBias(const OpContext& context, const TBlob&, OpReqType request) {
  return OnGpu(context) ? request : mxnet::kNullOp;
}
OpReqType PartOfBias(const OpContext&, const NDArray&, OpReqType request) { return request; }

}  // namespace

Convolver::Convolver(const std::string& name, const Dictionary& attributes) {
  ConvolutionSettings settings;
  const auto unknown = settings.InitAllowUnknown(attributes);
  forward = Delegate(kForward, name, Dictionary(unknown.begin(), unknown.end()));
  backward = forward.As(kBackward);
  micro_batch = settings.micro_batch;
  micro_batch_mb = settings.micro_batch_mb;
  has_bias = forward.attrs().op->get_num_inputs(forward.attrs()) == 3;
}

int64_t Convolver::Step(const TShape& data, const TShape& weight, const TShape& output) const {
  const int64_t batch = std::max<int64_t>(1, data[0]);
  if (micro_batch_mb == 0) return micro_batch == 0 ? batch : std::min<int64_t>(micro_batch, batch);
  // The dtype is not known where shapes are inferred.
  const int64_t size = sizeof(float), bytes = size * (data.Size() + output.Size());
  const int64_t of_weight = kOfWeight * size * weight.Size();
  const int64_t limit = std::max(int64_t{micro_batch_mb} << 20, of_weight);
  if (bytes <= limit) return batch;
  const int64_t most = std::max<int64_t>({1, micro_batch, limit / (bytes / batch)});
  const int64_t parts = (batch + most - 1) / most;
  return (batch + parts - 1) / parts;
}

template <class Array>
void Convolver::Forward(const OpContext& context, const std::vector<Array>& in, OpReqType request,
                        const Array& out, const Maker<Array>& make) const {
  const int64_t batch = ShapeOf(out)[0], step = Step(ShapeOf(in[0]), ShapeOf(in[1]), ShapeOf(out));
  std::vector<Array> part = in;
  for (int64_t begin = 0; begin < batch; begin += step) {
    const int64_t end = std::min(begin + step, batch);
    part[0] = make(begin, end);
    forward.Run(context, part, {request}, {Samples(out, begin, end)});
  }
}

template <class Array>
void Convolver::Backward(const OpContext& context, const std::vector<Array>& in,
                         const Requests& request, const std::vector<Array>& out,
                         const Maker<Array>& make) const {
  const int64_t batch = ShapeOf(in[0])[0];
  const int64_t step = Step(ShapeOf(in[1]), ShapeOf(in[2]), ShapeOf(in[0]));
  const bool whole = step >= batch || !IsInDefaultLayout(out[0]);
  if (whole && !make) return backward.Run(context, in, request, out);
  std::vector<Array> part_in = in;
  if (whole) {
    part_in[1] = make(0, batch);
    return backward.Run(context, part_in, request, out);
  }
  std::vector<Array> part_out = out;
  const Array gradient = InDefaultLayout(in[0]);
  Requests part_request = request;
  if (has_bias) part_request[2] = PartOfBias(context, in[0], request[2]);
  for (int64_t begin = 0; begin < batch; begin += step) {
    const int64_t end = std::min(begin + step, batch);
    part_in[0] = Samples(gradient, begin, end);
    part_in[1] = make ? make(begin, end) : Samples(in[1], begin, end);
    part_out[0] = Samples(out[0], begin, end);
    backward.Run(context, part_in, part_request, part_out);
    for (size_t i = 1; i < part_request.size(); ++i) part_request[i] = Later(part_request[i]);
  }
  if (has_bias && PartOfBias(context, in[0], request[2]) != request[2]) {
    BiasGradient(BlobOf(in[0]), request[2], BlobOf(out[2]));
  }
}

template void Convolver::Forward(const OpContext&, const Blobs&, OpReqType, const TBlob&,
                                 const Maker<TBlob>&) const;
template void Convolver::Forward(const OpContext&, const NDArrays&, OpReqType, const NDArray&,
                                 const Maker<NDArray>&) const;
template void Convolver::Backward(const OpContext&, const Blobs&, const Requests&, const Blobs&,
                                  const Maker<TBlob>&) const;
template void Convolver::Backward(const OpContext&, const NDArrays&, const Requests&,
                                  const NDArrays&, const Maker<NDArray>&) const;

template <class T>
static void SumSamples(const TBlob& gradient, OpReqType request, const TBlob& out) {
  const int64_t samples = gradient.shape_[0], channels = gradient.shape_[1];
  const int64_t inner = gradient.shape_.ProdShape(2, gradient.shape_.ndim());
  const T* g = gradient.dptr<T>();
  T* to = out.dptr<T>();
  ForEach(channels, 1, samples * channels * inner >= kParallelFrom, [=](int64_t c) {
    T sum = T(0);
    for (int64_t n = 0; n < samples; ++n) {
      const T* from = g + (n * channels + c) * inner;
      T one = T(0);
      for (int64_t i = 0; i < inner; ++i) one += from[i];
      sum += one;
    }
    Store(to + c, request, sum);
  });
}

void BiasGradient(const TBlob& gradient, OpReqType request, const TBlob& out) {
  MEMONGER_REAL_SWITCH(gradient.type_flag_, kBackward, T, SumSamples<T>(gradient, request, out);)
}

std::vector<dmlc::ParamFieldInfo> StockFields() {
  std::vector<dmlc::ParamFieldInfo> fields;
  for (const auto& field : nnvm::Op::Get(kForward)->arguments) {
    if (field.type.find("NDArray") == std::string::npos) fields.push_back(field);
  }
  return fields;
}

std::vector<dmlc::ParamFieldInfo> ConvolutionFields() {
  std::vector<dmlc::ParamFieldInfo> fields = StockFields();
  for (const auto& field : FieldsOf<ConvolutionSettings>()) fields.push_back(field);
  return fields;
}

Operator ConvolutionLike(const char* name, const Delegate& (*stock)(const NodeAttrs&)) {
  static const auto& infer_shape = nnvm::Op::GetAttr<mxnet::FInferShape>("FInferShape");
  static const auto& infer_type = nnvm::Op::GetAttr<nnvm::FInferType>("FInferType");
  const auto inputs = [stock](const NodeAttrs& attrs) {
    const NodeAttrs& convolution = stock(attrs).attrs();
    return convolution.op->get_num_inputs(convolution);
  };
  return Operator(name)
      .Inputs(inputs)
      .Outputs(1)
      .InputNames([inputs](const NodeAttrs& attrs) {
        Names names{"data", "weight", "bias"};
        names.resize(inputs(attrs));
        return names;
      })
      .OutputNames({"output"})
      .InferShape([stock](const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
        const NodeAttrs& convolution = stock(attrs).attrs();
        return infer_shape[convolution.op](convolution, in, out);
      })
      .InferType([stock](const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
        const NodeAttrs& convolution = stock(attrs).attrs();
        return infer_type[convolution.op](convolution, in, out);
      })
      .InferStorage([stock](const NodeAttrs& attrs, const int device, mxnet::DispatchMode* mode,
                            std::vector<int>* in, std::vector<int>* out) {
        return stock(attrs).InferStorage(device, mode, in, out);
      })
      .TempSpace()
      .UsesMkldnn()
      .Argument("data", "Input.")
      .Argument("weight", "Filters.")
      .Argument("bias", "Bias.");
}

}  // namespace ops
}  // namespace memonger
