/*
 * memonger_convolution: Convolution with a chosen implementation.
 *
 * What computes is MXNet's own Convolution (delegate.h). `micro_batch` or `micro_batch_mb` runs it
 * on a few samples at a time, which bounds the workspace of implementations whose workspace grows
 * with the batch (cuDNN, and MKLDNN's copies in other layouts; the native CPU code unrolls one
 * sample at a time and needs no more for a larger batch). On a GPU the workspace limit and
 * cudnn_tune can be set for each of the three directions. Native CPU results are bit for bit those
 * of Convolution.
 */
#include "ops/convolutions/convolution.h"

#include "ops/frame/operator.h"
#include "ops/register.h"

namespace memonger {
namespace ops {

namespace {

constexpr const char* kForward = "Convolution";
constexpr const char* kBackward = "_backward_Convolution";
// For each part MKLDNN walks over the weight, or its gradient, five times to convert and to add
// them: data and output of a part are at least this many times as large.
constexpr int64_t kOfWeight = 8;

// MXNet's gradient with settings of its own, or those of forward.
Delegate BackwardWith(const Delegate& forward, const std::string& workspace,
                      const std::string& tune) {
  if (workspace.empty() && tune.empty()) return forward.As(kBackward);
  Dictionary attributes = forward.attrs().dict;
  if (!workspace.empty()) attributes["workspace"] = workspace;
  if (!tune.empty()) attributes["cudnn_tune"] = tune;
  return Delegate(kBackward, forward.attrs().name, attributes);
}

bool OnGpu(const OpContext& context) {
  return context.run_ctx.ctx.dev_mask() == mshadow::gpu::kDevMask;
}

const Convolver& ConvolverOf(const NodeAttrs& attrs) { return nnvm::get<Convolver>(attrs.parsed); }

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
  backward_data =
      BackwardWith(forward, settings.backward_data_workspace, settings.backward_data_cudnn_tune);
  backward_filter = BackwardWith(forward, settings.backward_filter_workspace,
                                 settings.backward_filter_cudnn_tune);
  micro_batch = settings.micro_batch;
  micro_batch_mb = settings.micro_batch_mb;
  one_backward = settings.backward_data_workspace == settings.backward_filter_workspace &&
                 settings.backward_data_cudnn_tune == settings.backward_filter_cudnn_tune;
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
  if (step >= batch && !make) return forward.Run(context, in, {request}, {out});
  std::vector<Array> part = in;
  const Array data = make ? in[0] : InDefaultLayout(in[0]);
  for (int64_t begin = 0; begin < batch; begin += step) {
    const int64_t end = std::min(begin + step, batch);
    part[0] = make ? make(begin, end) : Samples(data, begin, end);
    forward.Run(context, part, {request}, {Samples(out, begin, end)});
  }
}

template <class Array>
void Convolver::BackwardPart(const OpContext& context, const std::vector<Array>& in,
                             const Requests& request, const std::vector<Array>& out) const {
  if (one_backward || !OnGpu(context)) return backward_data.Run(context, in, request, out);
  Requests data(request.size(), mxnet::kNullOp), rest = request;
  data[0] = request[0];
  rest[0] = mxnet::kNullOp;
  backward_data.Run(context, in, data, out);
  backward_filter.Run(context, in, rest, out);
}

template <class Array>
void Convolver::Backward(const OpContext& context, const std::vector<Array>& in,
                         const Requests& request, const std::vector<Array>& out,
                         const Maker<Array>& make) const {
  const int64_t batch = ShapeOf(in[0])[0];
  const int64_t step = Step(ShapeOf(in[1]), ShapeOf(in[2]), ShapeOf(in[0]));
  const bool whole = step >= batch || !IsInDefaultLayout(out[0]);
  if (whole && !make) return BackwardPart(context, in, request, out);
  std::vector<Array> part_in = in;
  if (whole) {
    part_in[1] = make(0, batch);
    return BackwardPart(context, part_in, request, out);
  }
  std::vector<Array> part_out = out;
  const Array gradient = InDefaultLayout(in[0]), data = make ? in[1] : InDefaultLayout(in[1]);
  Requests part_request = request;
  if (has_bias) part_request[2] = PartOfBias(context, in[0], request[2]);
  for (int64_t begin = 0; begin < batch; begin += step) {
    const int64_t end = std::min(begin + step, batch);
    part_in[0] = Samples(gradient, begin, end);
    part_in[1] = make ? make(begin, end) : Samples(data, begin, end);
    part_out[0] = Samples(out[0], begin, end);
    BackwardPart(context, part_in, part_request, part_out);
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

namespace {

void Parse(NodeAttrs* attrs) { attrs->parsed = Convolver(attrs->name, attrs->dict); }

template <class Array>
void Forward(const NodeAttrs& attrs, const OpContext& context, const std::vector<Array>& in,
             const Requests& request, const std::vector<Array>& out) {
  ConvolverOf(attrs).Forward(context, in, request[0], out[0]);
}

template <class Array>
void Backward(const NodeAttrs& attrs, const OpContext& context, const std::vector<Array>& in,
              const Requests& request, const std::vector<Array>& out) {
  ConvolverOf(attrs).Backward(context, in, request, out);
}

uint32_t Inputs(const NodeAttrs& attrs) { return ConvolverOf(attrs).has_bias ? 3 : 2; }

}  // namespace

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

void RegisterConvolution() {
  ConvolutionLike(
      "memonger_convolution",
      [](const NodeAttrs& attrs) -> const Delegate& { return ConvolverOf(attrs).forward; })
      .Text(
          "Convolution with a chosen implementation: on a few samples at a time, and on a "
          "GPU with a workspace limit and a way of tuning for each direction.")
      .Parser(Parse)
      .Compute(Forward<TBlob>)
      .ComputeOnGpu(Forward<TBlob>)
      .ComputeArrays(Forward<NDArray>)
      .Gradient([](const ObjectPtr& node, const std::vector<NodeEntry>& gradients) {
        std::vector<NodeEntry> inputs{gradients[0]};
        inputs.insert(inputs.end(), node->inputs.begin(), node->inputs.end());
        return GradientsOf(BackwardNode(node, "_backward_memonger_convolution", inputs),
                           Inputs(node->attrs));
      })
      .Arguments(ConvolutionFields());

  Operator("_backward_memonger_convolution")
      .Inputs([](const NodeAttrs& attrs) { return Inputs(attrs) + 1; })
      .Outputs(Inputs)
      .Parser(Parse)
      .IsBackward()
      .InferStorage([](const NodeAttrs& attrs, const int device, mxnet::DispatchMode* mode,
                       std::vector<int>* in, std::vector<int>* out) {
        return ConvolverOf(attrs).backward_data.InferStorage(device, mode, in, out);
      })
      .TempSpace()
      .UsesMkldnn()
      .Compute(Backward<TBlob>)
      .ComputeOnGpu(Backward<TBlob>)
      .ComputeArrays(Backward<NDArray>);
}

}  // namespace ops
}  // namespace memonger
