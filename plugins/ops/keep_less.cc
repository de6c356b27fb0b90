/*
 * MXNet's operators with gradients that read less than MXNet hands them.
 *
 * Concat keeps all its inputs and average pooling its input and output, and their gradients read
 * none of it; the sigmoid's gradient is made of its output, yet the input is kept, too, and so on.
 * Forward and backward are MXNet's own code (delegate.h), but for the gradients of elu, tanh and
 * soft ReLU; what is not kept is replaced by another array of the same shape, whose values are not
 * read. Bit for bit as MXNet without MKLDNN.
 */
#include "./beside_mkldnn.h"
#include "./delegate.h"
#include "./lanes.h"
#include "./operator.h"
#include "./pieces.h"
#include "./register.h"

namespace memonger {
namespace ops {
namespace {

// A place in backward's inputs (>= 0), or ~j: its j-th output stands in.
using Places = std::vector<int>;

// Gradients that are not MXNet's code.
enum class Own { kNone, kElu, kSoftRelu, kTanh };

struct Frugal {
  Delegate forward, backward;
  std::vector<int> kept;  // what backward reads besides the gradient: input i, or ~i for output i
  Places stand_ins;       // where the inputs of MXNet's backward come from
  bool mkldnn = false;    // MKLDNN's gradient reads no more than that
  uint32_t inputs;
  Own own = Own::kNone;
  float slope;
};

struct Kind {
  const char *name, *stock, *text;
  bool elementwise;
  bool has_inputs_by_number;
  // Checks the attributes and fills all but the delegates.
  void (*plan)(const Dictionary& attributes, Frugal* frugal);
};

std::string Get(const Dictionary& attributes, const char* key, const char* otherwise) {
  const auto found = attributes.find(key);
  return found == attributes.end() ? otherwise : found->second;
}

// gradient, inputs ...: all of them.
void PlanConcat(const Dictionary&, Frugal* frugal) {
  frugal->stand_ins = {0};
  for (uint32_t i = 0; i < frugal->inputs; ++i) frugal->stand_ins.push_back(~static_cast<int>(i));
  frugal->mkldnn = true;
}

// gradient, input, output
void PlanPooling(const Dictionary& attributes, Frugal* frugal) {
  const std::string type = Get(attributes, "pool_type", "max");
  if (type != "avg" && type != "sum") {
    RefuseAttribute("pool_type must be avg or sum, not " + type);
  }
  frugal->stand_ins = {0, ~0, 0};
  frugal->mkldnn = true;
}

// gradient, output, input
void PlanActivation(const Dictionary& attributes, Frugal* frugal) {
  const std::string type = Get(attributes, "act_type", "");
  if (type != "sigmoid" && type != "tanh" && type != "softrelu" && type != "softsign") {
    RefuseAttribute("act_type must be sigmoid, tanh, softrelu or softsign, not " + type +
                    "; memonger_mask_relu keeps the least for relu");
  }
  frugal->kept = {type == "softsign" ? 0 : ~0};
  if (type == "softrelu") frugal->own = Own::kSoftRelu;
  if (type == "tanh") frugal->own = Own::kTanh;
  frugal->stand_ins = {0, 1, 1};
}

// gradient, input, [gamma,] output
void PlanLeakyRelu(const Dictionary& attributes, Frugal* frugal) {
  const std::string type = Get(attributes, "act_type", "leaky");
  if (type != "elu" && type != "selu" && type != "prelu") {
    RefuseAttribute("act_type must be elu, selu or prelu, not " + type +
                    "; memonger_mask_leaky_relu keeps the least for leaky");
  }
  if (type == "prelu") {
    frugal->kept = {0, 1};
    frugal->stand_ins = {0, 1, 2, 1};
  } else {
    frugal->kept = {~0};
    frugal->stand_ins = {0, 1, 1};
    if (type == "elu") frugal->own = Own::kElu;
    frugal->slope = std::stof(Get(attributes, "slope", "0.25"));
  }
}

const Kind kKinds[] = {
    {"memonger_concat", "Concat",
     "Concat whose gradient keeps nothing, where Concat keeps all inputs.", false, true,
     PlanConcat},
    {"memonger_avg_pool", "Pooling",
     "Average or sum pooling whose gradient keeps nothing, where Pooling keeps input and output.",
     false, false, PlanPooling},
    {"memonger_activation", "Activation",
     "sigmoid, tanh and softrelu that keep their output, softsign that keeps its input, where "
     "Activation keeps both.", true, false, PlanActivation},
    {"memonger_leaky_relu", "LeakyReLU",
     "elu and selu that keep their output, prelu that keeps its input, where LeakyReLU keeps both.",
     true, false, PlanLeakyRelu},
};

const Frugal& FrugalOf(const NodeAttrs& attrs) { return nnvm::get<Frugal>(attrs.parsed); }

void Parse(const Kind& kind, NodeAttrs* attrs) {
  Frugal frugal;
  frugal.forward = Delegate(kind.stock, attrs->name, attrs->dict);
  frugal.backward = frugal.forward.As((std::string("_backward_") + kind.stock).c_str());
  const NodeAttrs& stock = frugal.forward.attrs();
  frugal.inputs = stock.op->get_num_inputs ? stock.op->get_num_inputs(stock)
                                           : stock.op->num_inputs;
  kind.plan(attrs->dict, &frugal);
  attrs->parsed = std::move(frugal);
}

// Whether soft ReLU's code is ours: on a CPU where MXNet's would be MKLDNN's.
bool OwnSoftRelu(const Frugal& frugal, const OpContext& context, const TBlob& array) {
  return frugal.own == Own::kSoftRelu && context.run_ctx.ctx.dev_mask() == mshadow::cpu::kDevMask &&
         MkldnnActivates(array);
}

// MKLDNN's output is off by 2e-6 where it is next to 0, even below 0. The gradient made of it would
// be, too.
void SoftReluForward(const TBlob& data, OpReqType request, const TBlob& out) {
  if (request == mxnet::kNullOp) return;
  const float* x = data.dptr<float>();
  float* y = out.dptr<float>();
  ForEachPiece(out.Size(), [=](int64_t begin, int64_t length) {
    SoftReluOutput(x + begin, length, request == mxnet::kAddTo, y + begin);
  });
}

template <class Array>
void Forward(const NodeAttrs& attrs, const OpContext& context, const std::vector<Array>& in,
             const Requests& request, const std::vector<Array>& out) {
  const Frugal& frugal = FrugalOf(attrs);
  if (frugal.own == Own::kSoftRelu && (request[0] != mxnet::kAddTo || IsInDefaultLayout(out[0]))) {
    const Array plain = InDefaultLayout(in[0]);
    if (OwnSoftRelu(frugal, context, BlobOf(plain))) {
      SoftReluForward(BlobOf(plain), request[0], BlobToWrite(out[0]));
      return;
    }
  }
  frugal.forward.Run(context, in, request, out);
}

// What the incoming gradient is multiplied with, made of an output y: 1 above 0, else slope + y.
// MXNet's loop takes a branch on each sign, mostly mispredicted. MKLDNN's lets the gradient of NaN
// through.
template <class L, bool kNanPasses>
struct EluFactor {
  typename L::V slope;
  typename L::V operator()(typename L::V y) const {
    const auto zero = L::All(0);
    const auto open = kNanPasses ? L::NotAtMost(y, zero) : L::Above(y, zero);
    return L::Pick(open, L::All(1), L::Add(slope, y));
  }
};

// 1 - y * y. MXNet's loop is one number at a time. Not for float16, where MXNet squares in float32.
template <class L>
struct TanhFactor {
  typename L::V operator()(typename L::V y) const { return L::Sub(L::All(1), L::Mul(y, y)); }
};

// d = g * factor(y), with the same factor for several numbers and for one.
template <class T, class Factor, class One>
void ProductBackward(const TBlob& gradient, const TBlob& output, OpReqType request,
                     const TBlob& out, Factor factor, One one) {
  using L = Lanes<T>;
  const T *g = gradient.dptr<T>(), *y = output.dptr<T>();
  T* d = out.dptr<T>();
  const bool add = request == mxnet::kAddTo;
  ForEachPiece(out.Size(), [=](int64_t begin, int64_t length) {
    const int64_t end = begin + length, whole = begin + length / L::kWidth * L::kWidth;
    for (int64_t i = begin; i < whole; i += L::kWidth) {
      const auto result = L::Mul(L::Load(g + i), factor(L::Load(y + i)));
      L::Put(d + i, add ? L::Add(L::Load(d + i), result) : result);
    }
    for (int64_t i = whole; i < end; ++i) Store(d + i, request, T(g[i] * one(y[i])));
  });
}

template <class T, bool kNanPasses>
void EluBackward(const TBlob& gradient, const TBlob& output, T slope, OpReqType request,
                 const TBlob& out) {
  ProductBackward<T>(gradient, output, request, out,
                     EluFactor<Lanes<T>, kNanPasses>{Lanes<T>::All(slope)},
                     EluFactor<Single<T>, kNanPasses>{slope});
}

template <class T>
void TanhBackward(const TBlob& gradient, const TBlob& output, OpReqType request,
                  const TBlob& out) {
  ProductBackward<T>(gradient, output, request, out, TanhFactor<Lanes<T>>(),
                     TanhFactor<Single<T>>());
}

// MKLDNN's gradient reads the input, and the native one takes an exponential of each value, one by
// one. Where MKLDNN would have run, results are as close to the truth as its own, and as fast.
void SoftReluBackward(const TBlob& gradient, const TBlob& output, OpReqType request,
                      const TBlob& out) {
  const float *g = gradient.dptr<float>(), *y = output.dptr<float>();
  float* d = out.dptr<float>();
  ForEachPiece(out.Size(), [=](int64_t begin, int64_t length) {
    SoftReluGradient(g + begin, y + begin, length, request == mxnet::kAddTo, d + begin);
  });
}

inline bool RunsOwnCode(const Frugal& frugal, const OpContext& context, const Blobs& in,
                        const Requests& request, const Blobs& out) {
  if (context.run_ctx.ctx.dev_mask() != mshadow::cpu::kDevMask) return false;
  const bool softrelu = OwnSoftRelu(frugal, context, in[0]);
  const bool tanh = frugal.own == Own::kTanh && in[0].type_flag_ != mshadow::kFloat16;
  if (frugal.own != Own::kElu && !tanh && !softrelu) return false;
  if (request[0] == mxnet::kNullOp) return true;
  if (tanh) {
    (in[0].type_flag_ == mshadow::kFloat64 ? TanhBackward<double> : TanhBackward<float>)(
        in[0], in[1], request[0], out[0]);
    return true;
  }
  if (softrelu) {
    SoftReluBackward(in[0], in[1], request[0], out[0]);
    return true;
  }
  if (MkldnnActivates(in[0])) {
    EluBackward<float, true>(in[0], in[1], frugal.slope, request[0], out[0]);
    return true;
  }
  MEMONGER_REAL_SWITCH(in[0].type_flag_, "memonger_leaky_relu", T,
                       (EluBackward<T, false>(in[0], in[1], T(frugal.slope), request[0],
                                              out[0]));)
  return true;
}
inline bool RunsOwnCode(const Frugal&, const OpContext&, const NDArrays&, const Requests&,
                        const NDArrays&) {
  return false;
}

template <class Array>
void Backward(const NodeAttrs& attrs, const OpContext& context, const std::vector<Array>& in,
              const Requests& request, const std::vector<Array>& out) {
  const Frugal& frugal = FrugalOf(attrs);
  if (RunsOwnCode(frugal, context, in, request, out)) return;
  std::vector<Array> stock_in;
  stock_in.reserve(frugal.stand_ins.size());
  for (int place : frugal.stand_ins) stock_in.push_back(place >= 0 ? in[place] : out[~place]);
  frugal.backward.Run(context, stock_in, request, out);
}

bool BackwardStorage(const NodeAttrs& attrs, const int device, mxnet::DispatchMode* mode,
                     std::vector<int>* in, std::vector<int>* out) {
  const Frugal& frugal = FrugalOf(attrs);
  std::fill(out->begin(), out->end(), mxnet::kDefaultStorage);
  const bool dense = std::all_of(in->begin(), in->end(), [](int type) {
    return type == mxnet::kUndefinedStorage || type == mxnet::kDefaultStorage;
  });
  std::replace(in->begin(), in->end(), static_cast<int>(mxnet::kUndefinedStorage),
               static_cast<int>(mxnet::kDefaultStorage));
  if (!dense || !frugal.mkldnn) {
    *mode = dense ? mxnet::DispatchMode::kFCompute : mxnet::DispatchMode::kFComputeFallback;
    return true;
  }
  std::vector<int> stock_in(frugal.stand_ins.size(), mxnet::kDefaultStorage);
  std::vector<int> stock_out(out->size(), mxnet::kUndefinedStorage);
  return frugal.backward.InferStorage(device, mode, &stock_in, &stock_out);
}

// An attribute function of the operator that we stand for, called with its own attributes.
template <class Function, class... Arguments>
auto Ask(const char* key, const NodeAttrs& attrs, Arguments... arguments) {
  const NodeAttrs& stock = FrugalOf(attrs).forward.attrs();
  return nnvm::Op::GetAttr<Function>(key)[stock.op](stock, arguments...);
}

std::vector<NodeEntry> Gradient(const std::string& backward, const ObjectPtr& node,
                                const std::vector<NodeEntry>& gradients) {
  std::vector<NodeEntry> inputs{gradients[0]};
  for (int kept : FrugalOf(node->attrs).kept) {
    inputs.push_back(kept >= 0 ? node->inputs[kept]
                               : NodeEntry{node, static_cast<uint32_t>(~kept), 0});
  }
  return GradientsOf(BackwardNode(node, backward, inputs), FrugalOf(node->attrs).inputs);
}

void Register(const Kind& kind) {
  const std::string backward = std::string("_backward_") + kind.name;
  const nnvm::Op* stock = nnvm::Op::Get(kind.stock);
  const auto parse = [&kind](NodeAttrs* attrs) { Parse(kind, attrs); };
  Operator op(kind.name);
  op.Text(kind.text)
      .Inputs([](const NodeAttrs& attrs) { return FrugalOf(attrs).inputs; })
      .Outputs(1)
      .Parser(parse)
      .OutputNames({"output"})
      .InferShape([](const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
        return Ask<mxnet::FInferShape>("FInferShape", attrs, in, out);
      })
      .InferType([](const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
        return Ask<nnvm::FInferType>("FInferType", attrs, in, out);
      })
      .InferStorage([](const NodeAttrs& attrs, const int device, mxnet::DispatchMode* mode,
                       std::vector<int>* in, std::vector<int>* out) {
        return FrugalOf(attrs).forward.InferStorage(device, mode, in, out);
      })
      .UsesMkldnn()
      .TempSpace()
      .Compute(Forward<TBlob>)
      .ComputeOnGpu(Forward<TBlob>)
      .ComputeArrays(Forward<NDArray>)
      .Gradient([backward](const ObjectPtr& node, const std::vector<NodeEntry>& gradients) {
        return Gradient(backward, node, gradients);
      })
      .Arguments(stock->arguments);
  static const auto& names = nnvm::Op::GetAttr<nnvm::FListInputNames>("FListInputNames");
  if (names.contains(stock)) {
    op.InputNames([](const NodeAttrs& attrs) {
      return Ask<nnvm::FListInputNames>("FListInputNames", attrs);
    });
  }
  if (kind.has_inputs_by_number) op.InputsByNumber("num_args");

  Operator gradient(backward);
  gradient.Inputs([](const NodeAttrs& attrs) {
        return static_cast<uint32_t>(1 + FrugalOf(attrs).kept.size());
      })
      .Outputs([](const NodeAttrs& attrs) { return FrugalOf(attrs).inputs; })
      .Parser(parse)
      .IsBackward()
      .InferStorage(BackwardStorage)
      .UsesMkldnn()
      .TempSpace()
      .Compute(Backward<TBlob>)
      .ComputeOnGpu(Backward<TBlob>)
      .ComputeArrays(Backward<NDArray>);
  if (kind.elementwise) {
    op.InplaceFirst();
    gradient.InplaceFirst();
  }
}

}  // namespace

void RegisterKeepLess() {
  for (const Kind& kind : kKinds) Register(kind);
}

}  // namespace ops
}  // namespace memonger
