/*
 * memonger_split_convolution: Convolution whose gradient is made in two steps.
 *
 * MXNet's gradient has data, output's gradient and data's gradient in memory at once. Here one op
 * makes the gradients of weight and bias, then another that of the data, which does not read the
 * data: they are free by then. A control dependency has MXNet run the two in this order, one right
 * after the other.
 *
 * What computes is MXNet's own gradient (delegate.h), asked for a part. MKLDNN and cuDNN leave out
 * what nobody asks for. MXNet's native code always makes both; native_gradient.h has its parts.
 */
#include <algorithm>

#include "ops/convolutions/convolution.h"
#include "ops/convolutions/native_gradient.h"
#include "ops/delegates/delegate.h"
#include "ops/frame/operator.h"
#include "ops/register.h"

namespace memonger {
namespace ops {
namespace {

constexpr const char* kName = "memonger_split_convolution";
constexpr const char* kOfWeight = "_backward_memonger_split_convolution_weight";
constexpr const char* kOfData = "_backward_memonger_split_convolution_data";

struct SplitConvolution {
  Delegate forward, backward;
  NativeGradient native;
  uint32_t parameters = 1;  // weight [bias]
  bool cudnn_off = false;
};

const SplitConvolution& Of(const NodeAttrs& attrs) {
  return nnvm::get<SplitConvolution>(attrs.parsed);
}

void Parse(NodeAttrs* attrs) {
  SplitConvolution split;
  split.forward = Delegate("Convolution", attrs->name, attrs->dict);
  split.backward = split.forward.As("_backward_Convolution");
  split.native = NativeGradient(attrs->name, attrs->dict);
  const NodeAttrs& stock = split.forward.attrs();
  split.parameters = stock.op->get_num_inputs(stock) - 1;
  const auto off = attrs->dict.find("cudnn_off");
  split.cudnn_off = off != attrs->dict.end() && off->second != "False" && off->second != "0" &&
                    off->second != "false";
  attrs->parsed = split;
}

// ------------------------------------------------------------------ the two parts
// Inputs and outputs of MXNet's gradient; arrays that a part neither reads nor writes have a shape
// and no memory.
template <class Array>
struct Gradient {
  std::vector<Array> in;   // gradient data weight [bias]
  std::vector<Array> out;  // of data, weight [bias]
  Requests request;
};

TBlob Absent(const TBlob& like, const TShape& shape) {
  return TBlob(nullptr, shape, like.dev_mask(), like.type_flag_, like.dev_id());
}
NDArray Absent(const NDArray& like, const TShape& shape) {
  return NDArray(shape, like.ctx(), true, like.dtype());  // memory comes with the first use
}

// For an array that has the shape of another one. An NDArray without memory takes half a
// microsecond to make and to give up; MKLDNN leaves alone what it is not asked for, so the other
// one serves.
TBlob Absent(const TBlob& alike) { return Absent(alike, alike.shape_); }
NDArray Absent(const NDArray& alike) { return alike; }

// `in` is gradient data weight, `out` the gradients of weight [and bias].
template <class Array>
Gradient<Array> OfWeight(const std::vector<Array>& in, const Requests& request,
                         const std::vector<Array>& out) {
  Gradient<Array> whole{in, {Absent(in[1])}, {mxnet::kNullOp}};
  if (out.size() > 1) whole.in.push_back(Absent(out[1]));
  whole.out.insert(whole.out.end(), out.begin(), out.end());
  whole.request.insert(whole.request.end(), request.begin(), request.end());
  return whole;
}

// `in` is gradient weight, `out` the gradient of the data.
template <class Array>
Gradient<Array> OfData(const std::vector<Array>& in, const Requests& request,
                       const std::vector<Array>& out, uint32_t parameters) {
  Gradient<Array> whole{{in[0], Absent(out[0]), in[1]}, {out[0], Absent(in[1])}, request};
  if (parameters > 1) {
    const Array bias = Absent(in[1], Flat(ShapeOf(in[1])[0]));
    whole.in.push_back(bias);
    whole.out.push_back(bias);
  }
  whole.request.resize(1 + parameters, mxnet::kNullOp);
  return whole;
}

// ------------------------------------------------------------------ one part
void RunNative(const SplitConvolution& split, const OpContext& context,
               const Gradient<TBlob>& whole) {
  const auto& wants = whole.request;
  if (wants[0] != mxnet::kNullOp) {
    split.native.OfData(context, whole.in[0], whole.in[2], wants[0], whole.out[0]);
  }
  if (wants[1] != mxnet::kNullOp) {
    split.native.OfWeight(context, whole.in[0], whole.in[1], wants[1], whole.out[1]);
  }
  if (wants.size() > 2 && wants[2] != mxnet::kNullOp) {
    BiasGradient(whole.in[0], wants[2], whole.out[2]);
  }
}

void Run(const SplitConvolution& split, const OpContext& context, const Gradient<TBlob>& whole) {
  if (context.run_ctx.ctx.dev_mask() == mshadow::cpu::kDevMask) {
    return RunNative(split, context, whole);
  }
  CHECK(!split.cudnn_off) << "Error in operator " << split.forward.attrs().name << ": " << kName
                          << " needs cuDNN on a GPU, which cudnn_off forbids";
  split.backward.Run(context, whole.in, whole.request, whole.out);
}

void Run(const SplitConvolution& split, const OpContext& context, const Gradient<NDArray>& whole) {
  split.backward.Run(context, whole.in, whole.request, whole.out);
}

bool Nothing(const Requests& request) {
  return std::all_of(request.begin(), request.end(),
                     [](OpReqType one) { return one == mxnet::kNullOp; });
}

template <class Array>
void BackwardWeight(const NodeAttrs& attrs, const OpContext& context, const std::vector<Array>& in,
                    const Requests& request, const std::vector<Array>& out) {
  if (!Nothing(request)) Run(Of(attrs), context, OfWeight(in, request, out));
}

template <class Array>
void BackwardData(const NodeAttrs& attrs, const OpContext& context, const std::vector<Array>& in,
                  const Requests& request, const std::vector<Array>& out) {
  if (!Nothing(request)) {
    Run(Of(attrs), context, OfData(in, request, out, Of(attrs).parameters));
  }
}

// Where MXNet has MKLDNN for a type it uses it, else its native code.
mxnet::FComputeEx ForArrays(mxnet::FComputeEx mkldnn, mxnet::FCompute native) {
  return [mkldnn, native](const NodeAttrs& attrs, const OpContext& context, const NDArrays& in,
                          const Requests& request, const NDArrays& out) {
    if (in[0].dtype() == mshadow::kFloat32 || in[0].dtype() == mshadow::kBfloat16) {
      return mkldnn(attrs, context, in, request, out);
    }
    Blobs from, to;
    for (const NDArray& array : in) from.push_back(array.data());
    for (const NDArray& array : out) to.push_back(array.data());
    native(attrs, context, from, request, to);
  };
}

template <class Array>
void Forward(const NodeAttrs& attrs, const OpContext& context, const std::vector<Array>& in,
             const Requests& request, const std::vector<Array>& out) {
  Of(attrs).forward.Run(context, in, request, out);
}

uint32_t Parameters(const NodeAttrs& attrs) { return Of(attrs).parameters; }

std::vector<NodeEntry> Gradients(const ObjectPtr& node, const std::vector<NodeEntry>& gradients) {
  const NodeEntry &gradient = gradients[0], &data = node->inputs[0], &weight = node->inputs[1];
  const ObjectPtr of_weight = BackwardNode(node, kOfWeight, {gradient, data, weight});
  const ObjectPtr of_data = BackwardNode(node, kOfData, {gradient, weight});
  of_data->control_deps.push_back(of_weight);
  std::vector<NodeEntry> result = GradientsOf(of_weight, Parameters(node->attrs));
  result.insert(result.begin(), NodeEntry{of_data, 0, 0});
  return result;
}

bool InferBackwardStorage(const NodeAttrs& attrs, const int device, mxnet::DispatchMode* mode,
                          std::vector<int>* in, std::vector<int>* out) {
  const int parameters = Of(attrs).parameters;
  return Of(attrs).backward.InferDense(2 + parameters, 1 + parameters, device, mode, in, out);
}

void RegisterPart(const char* name, uint32_t inputs, Operator::Count outputs,
                  mxnet::FCompute compute, mxnet::FComputeEx compute_arrays) {
  Operator(name)
      .Inputs(inputs)
      .Outputs(outputs)
      .Parser(Parse)
      .IsBackward()
      .InferStorage(InferBackwardStorage)
      .TempSpace()
      .UsesMkldnn()
      .Compute(compute)
      .ComputeOnGpu(compute)
      .ComputeArrays(ForArrays(compute_arrays, compute));
}

}  // namespace

void RegisterSplitConvolution() {
  ConvolutionLike(kName,
                  [](const NodeAttrs& attrs) -> const Delegate& { return Of(attrs).forward; })
      .Text(
          "Convolution that makes the gradient of its weight and that of its data one after the "
          "other, so that data and data's gradient need not be in memory at once.")
      .Parser(Parse)
      .Compute(Forward<TBlob>)
      .ComputeOnGpu(Forward<TBlob>)
      .ComputeArrays(Forward<NDArray>)
      .Gradient(Gradients)
      .Arguments(StockFields());
  RegisterPart(kOfWeight, 3, Parameters, BackwardWeight<TBlob>, BackwardWeight<NDArray>);
  RegisterPart(
      kOfData, 2, [](const NodeAttrs&) { return 1u; }, BackwardData<TBlob>, BackwardData<NDArray>);
}

}  // namespace ops
}  // namespace memonger
