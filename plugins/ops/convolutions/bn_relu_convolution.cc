/*
 * memonger_bn_relu_convolution: BatchNorm, ReLU and Convolution in one, keeping BatchNorm's input.
 *
 * MXNet's three operators keep BatchNorm's input and ReLU's output. Here the convolution's input is
 * made again in backward, a few samples at a time (`micro_batch`), in `buffer`: a hidden output of
 * both directions that nobody reads, so that MXNet plans its memory and it is free again at once.
 * The gradient of ReLU's output is written to where the gradient of the data goes.
 *
 * The convolution is MXNet's own (convolution.h), the rest is batch_norm_relu.h: without MKLDNN
 * the results are bit for bit those of the three operators. BatchNorm's attributes keep their
 * names, but for `bn_cudnn_off`; `cudnn_off` is the convolution's.
 */
#include "ops/convolutions/bn_relu_convolution.h"

#include "ops/frame/operator.h"
#include "ops/frame/params.h"
#include "ops/norms/batch_norm_relu.h"
#include "ops/register.h"

namespace memonger {
namespace ops {
namespace {

constexpr const char* kName = "memonger_bn_relu_convolution";
void Parse(NodeAttrs* attrs) {
  Dictionary norm, rest;
  for (const auto& item : attrs->dict) {
    const auto fields = FieldsOf<BatchNormParam>();
    const bool is_norm =
        item.first != "cudnn_off" &&
        std::any_of(fields.begin(), fields.end(),
                    [&](const dmlc::ParamFieldInfo& field) { return field.name == item.first; });
    if (item.first == "bn_cudnn_off") {
      norm["cudnn_off"] = item.second;
    } else {
      (is_norm ? norm : rest)[item.first] = item.second;
    }
  }
  Fused fused;
  fused.norm.Init(norm);
  fused.norm.stock = StockNormOf(attrs->name, norm);
  fused.convolver = Convolver(attrs->name, rest);
  attrs->parsed = std::move(fused);
}

// ------------------------------------------------------------------ shapes and types
bool Shape(const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
  static const auto& infer = nnvm::Op::GetAttr<mxnet::FInferShape>("FInferShape");
  const Fused& fused = FusedOf(attrs);
  const TShape& data = (*in)[0];
  if (!mxnet::ndim_is_known(data)) return false;
  if (ChannelAxis(attrs, data, fused.norm.axis) == 0) {
    Refuse(attrs, Words() << "the channel axis of BatchNorm, " << fused.norm.axis
                          << ", cannot be the batch of data " << data);
  }
  ShapeVector norm_in(in->begin(), in->begin() + kNormInputs), norm_out(3);
  const bool norm_known = BatchNormShape(attrs, fused.norm.axis, &norm_in, &norm_out);
  std::copy(norm_in.begin(), norm_in.end(), in->begin());
  ShapeVector conv_in = ConvolutionInputs(*in), conv_out{(*out)[0]};
  const NodeAttrs& stock = fused.convolver.forward.attrs();
  const bool known = infer[stock.op](stock, &conv_in, &conv_out);
  std::copy(conv_in.begin() + 1, conv_in.end(), in->begin() + kNormInputs);
  (*out)[0] = conv_out[0];
  (*out)[1] = norm_out[1];
  (*out)[2] = norm_out[2];
  if (!norm_known || !known) return false;
  (*out)[3] = data;
  (*out)[3][0] = fused.convolver.Step(data, conv_in[1], (*out)[0]);
  return true;
}

bool Type(const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
  TypeVector norm_in(in->begin(), in->begin() + kNormInputs), norm_out{(*out)[0], -1, -1};
  if (!BatchNormType(attrs, &norm_in, &norm_out)) return false;
  std::copy(norm_in.begin(), norm_in.end(), in->begin());
  for (size_t i = kNormInputs; i < in->size(); ++i) {
    InferParameter(attrs, i == kNormInputs ? "weight" : "bias", (*in)[0], &(*in)[i]);
  }
  *out = {(*in)[0], norm_out[1], norm_out[2], (*in)[0]};
  return true;
}

// Backward's inputs: gradient data gamma beta mean invstd moving_mean moving_var weight [bias]; its
// outputs: the gradients of data, gamma, beta, weight [and bias], then the buffer. Nothing in
// forward has the buffer's shape, so MXNet cannot infer it from there (and the op is not marked
// TIsBackward, with which it would try).
template <class Values, class Infer>
bool InferBackward(const NodeAttrs& attrs, const typename Values::value_type& unknown, Values* in,
                   Values* out, Infer infer) {
  Values forward{(*in)[1], (*in)[2], (*in)[3], (*in)[6], (*in)[7]}, results(4, unknown);
  forward.insert(forward.end(), in->begin() + 8, in->end());
  results[0] = (*in)[0];
  const bool known = infer(attrs, &forward, &results);
  (*in)[0] = results[0];
  (*in)[1] = forward[0];
  (*in)[2] = forward[1];
  (*in)[3] = forward[2];
  (*in)[4] = results[1];
  (*in)[5] = results[2];
  (*in)[6] = forward[3];
  (*in)[7] = forward[4];
  std::copy(forward.begin() + kNormInputs, forward.end(), in->begin() + 8);
  *out = Values(forward.begin(), forward.begin() + 3);
  out->insert(out->end(), forward.begin() + kNormInputs, forward.end());
  out->push_back(results[3]);
  return known;
}

// ------------------------------------------------------------------ computing
// Behind `first`, arrays begin to end - 1.
template <class Array>
Blobs BlobsOf(const TBlob& first, const std::vector<Array>& arrays, size_t begin, size_t end) {
  Blobs blobs;
  blobs.reserve(1 + end - begin);
  blobs.push_back(first);
  for (size_t i = begin; i < end; ++i) blobs.push_back(BlobOf(arrays[i]));
  return blobs;
}

// Makes the convolution's input in `buffer`. `data` is the first of `norm_in`. All must outlive it:
// nothing is copied.
template <class Array>
Convolver::Maker<Array> MakerOf(const Fused& fused, const Blobs& norm_in, const Blobs& statistics,
                                const Array& buffer) {
  return [&](int64_t begin, int64_t end) {
    const Array result = Samples(buffer, 0, end - begin);
    NormReluForward(fused.norm, BlobsOf(Samples(norm_in[0], begin, end), norm_in, 1, 3), statistics,
                    mxnet::kWriteTo, BlobOf(result));
    return result;
  };
}

template <class Array>
void Forward(const NodeAttrs& attrs, const OpContext& context, const std::vector<Array>& in,
             const Requests& request, const std::vector<Array>& out) {
  const Fused& fused = FusedOf(attrs);
  const Blobs norm_in = BlobsOf(BlobOf(in[0]), in, 1, kNormInputs);
  const Blobs statistics = BlobsOf(TBlob(), out, 1, 3);
  NormReluStatistics(fused.norm, context.is_train && !fused.norm.use_global_stats, norm_in,
                     statistics);
  if (request[0] == mxnet::kNullOp) return;
  fused.convolver.Forward(AsTraining(context), ConvolutionInputs(in), request[0], out[0],
                          MakerOf(fused, norm_in, statistics, out[3]));
}

// Where the gradient of ReLU's output goes: the gradient of the data, if that may be written.
inline TBlob Place(const TBlob& data, OpReqType request, NDArray* temporary) {
  if (request == mxnet::kWriteTo || request == mxnet::kWriteInplace) return data;
  *temporary = NDArray(data.shape_, mxnet::Context::CPU(), false, data.type_flag_);
  return temporary->data();
}
inline NDArray Place(const NDArray& data, OpReqType request, NDArray* temporary) {
  if (request == mxnet::kWriteTo || request == mxnet::kWriteInplace) return data;
  *temporary = NDArray(data.shape(), mxnet::Context::CPU(), false, data.dtype());
  return *temporary;
}

template <class Array>
void Backward(const NodeAttrs& attrs, const OpContext& context, const std::vector<Array>& in,
              const Requests& request, const std::vector<Array>& out) {
  const Fused& fused = FusedOf(attrs);
  const Blobs norm_in = BlobsOf(BlobOf(in[1]), in, 2, 4), statistics = BlobsOf(TBlob(), in, 4, 6);
  NDArray temporary, plain;
  const Array relu_gradient = Place(out[0], request[0], &temporary);
  std::vector<Array> conv_in, conv_out;
  conv_in.reserve(4);
  conv_out.reserve(3);
  conv_in.push_back(in[0]);
  conv_in.push_back(in[1]);
  conv_out.push_back(relu_gradient);
  Requests conv_request{mxnet::kWriteTo};
  for (uint32_t i = 0; i < fused.Parameters(); ++i) {
    conv_in.push_back(in[8 + i]);
    conv_out.push_back(out[3 + i]);
    conv_request.push_back(request[3 + i]);
  }
  fused.convolver.Backward(AsTraining(context), conv_in, conv_request, conv_out,
                           MakerOf(fused, norm_in, statistics, out.back()));
  // MKLDNN may have made it in a layout of its own; it no longer uses the temporary space.
  const TBlob gradient = Plain(context, relu_gradient, &plain);
  BlobToWrite(relu_gradient);  // empties it
  NormReluBackward(fused.norm, context.is_train && !fused.norm.use_global_stats,
                   BlobsOf(TBlob(), in, 1, 8), gradient, request,
                   BlobsOf(BlobOf(out[0]), out, 1, 3));
}

std::vector<dmlc::ParamFieldInfo> NormFields() {
  auto fields = FieldsOf<BatchNormParam>();
  for (auto& field : fields) {
    if (field.name == "cudnn_off") field.name = "bn_cudnn_off";
  }
  return fields;
}

}  // namespace

void RegisterBnReluConvolution() {
  RegisterNorm(kName,
               "BatchNorm, ReLU and Convolution in one: keeps BatchNorm's input alone and makes "
               "the convolution's input again in backward.")
      .Inputs([](const NodeAttrs& attrs) { return kNormInputs + FusedOf(attrs).Parameters(); })
      .Outputs(4)
      .Parser(Parse)
      .InputNames([](const NodeAttrs& attrs) {
        Names names{"data", "gamma", "beta", "moving_mean", "moving_var", "weight", "bias"};
        names.resize(kNormInputs + FusedOf(attrs).Parameters());
        return names;
      })
      .OutputNames({"output", "mean", "invstd", "buffer"})
      .InferShape(Shape)
      .InferType(Type)
      .InferStorage([](const NodeAttrs& attrs, const int device, mxnet::DispatchMode* mode,
                       std::vector<int>* in, std::vector<int>* out) {
        const Fused& fused = FusedOf(attrs);
        return fused.convolver.forward.InferDense(1 + fused.Parameters(), 1, device, mode, in, out);
      })
      .TempSpace()
      .OutsideCudaGraphs()
      .Compute(Forward<TBlob>)
      .ComputeArrays(Forward<NDArray>)
      .Gradient([](const ObjectPtr& n, const std::vector<NodeEntry>& gradients) {
        const auto& in = n->inputs;
        std::vector<NodeEntry> inputs{gradients[0],       in[0], in[1], in[2], NodeEntry{n, 1, 0},
                                      NodeEntry{n, 2, 0}, in[3], in[4]};
        inputs.insert(inputs.end(), in.begin() + kNormInputs, in.end());
        return GradientsOf(BackwardNode(n, "_backward_memonger_bn_relu_convolution", inputs),
                           3 + FusedOf(n->attrs).Parameters(), MovingAverages());
      })
      .Argument("weight", "Filters.")
      .Argument("bias", "Bias.")
      .Arguments(ConvolutionFields())
      .Arguments(NormFields());

  Operator("_backward_memonger_bn_relu_convolution")
      .Inputs([](const NodeAttrs& attrs) { return 8 + FusedOf(attrs).Parameters(); })
      .Outputs([](const NodeAttrs& attrs) { return 4 + FusedOf(attrs).Parameters(); })
      .Parser(Parse)
      .Changes({6, 7})
      .InferShape([](const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
        return InferBackward(attrs, TShape(), in, out, Shape);
      })
      .InferType([](const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
        return InferBackward(attrs, -1, in, out, Type);
      })
      .InferStorage([](const NodeAttrs& attrs, const int device, mxnet::DispatchMode* mode,
                       std::vector<int>* in, std::vector<int>* out) {
        const Fused& fused = FusedOf(attrs);
        const int parameters = fused.Parameters();
        return fused.convolver.backward.InferDense(2 + parameters, 1 + parameters, device, mode, in,
                                                   out);
      })
      .TempSpace()
      .OutsideCudaGraphs()
      .Compute(Backward<TBlob>)
      .ComputeArrays(Backward<NDArray>);
}

}  // namespace ops
}  // namespace memonger
