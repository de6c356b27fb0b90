/*
 * MXNet's operators with gradients that read less than MXNet hands them.
 *
 * Concat keeps all its inputs and average pooling its input and output, and their gradients read
 * none of it; the gradients of sigmoid and tanh are made of their output, yet the input is kept,
 * too. Forward and backward are MXNet's own code (delegate.h); what is not kept is replaced by
 * another array of the same shape, whose values are not read. Bit for bit as MXNet without MKLDNN.
 */
#include <memory>
#include <utility>

#include "ops/delegates/delegate.h"
#include "ops/frame/operator.h"
#include "ops/register.h"

namespace memonger {
namespace ops {
namespace {

// A place in backward's inputs (>= 0), or ~j: its j-th output stands in.
using Places = std::vector<int>;

struct Frugal {
  Delegate forward, backward;
  std::vector<int> kept;  // what backward reads besides the gradient: input i, or ~i for output i
  Places stand_ins;       // where the inputs of MXNet's backward come from
  bool mkldnn = false;    // MKLDNN's gradient reads no more than that
  uint32_t inputs;
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
  if (type != "sigmoid" && type != "tanh") {
    RefuseAttribute("act_type must be sigmoid or tanh, not " + type +
                    "; memonger_mask_relu keeps the least for relu");
  }
  frugal->kept = {~0};
  frugal->stand_ins = {0, 1, 1};
}

const Kind kKinds[] = {
    {"memonger_concat", "Concat",
     "Concat whose gradient keeps nothing, where Concat keeps all inputs.", false, true,
     PlanConcat},
    {"memonger_avg_pool", "Pooling",
     "Average or sum pooling whose gradient keeps nothing, where Pooling keeps input and output.",
     false, false, PlanPooling},
    {"memonger_activation", "Activation",
     "sigmoid and tanh that keep their output, where Activation keeps input and output.", true,
     false, PlanActivation},
};

// What attributes hold, shared by the copies of a node.
using Parsed = std::shared_ptr<const Frugal>;

const Frugal& FrugalOf(const NodeAttrs& attrs) { return *nnvm::get<Parsed>(attrs.parsed); }

void Parse(const Kind& kind, NodeAttrs* attrs) {
  Frugal frugal;
  frugal.forward = Delegate(kind.stock, attrs->name, attrs->dict);
  frugal.backward = frugal.forward.As((std::string("_backward_") + kind.stock).c_str());
  const NodeAttrs& stock = frugal.forward.attrs();
  frugal.inputs = stock.op->get_num_inputs ? stock.op->get_num_inputs(stock) : stock.op->num_inputs;
  kind.plan(attrs->dict, &frugal);
  attrs->parsed = Parsed(std::make_shared<Frugal>(std::move(frugal)));
}

template <class Array>
void Forward(const NodeAttrs& attrs, const OpContext& context, const std::vector<Array>& in,
             const Requests& request, const std::vector<Array>& out) {
  FrugalOf(attrs).forward.Run(context, in, request, out);
}

template <class Array>
void Backward(const NodeAttrs& attrs, const OpContext& context, const std::vector<Array>& in,
              const Requests& request, const std::vector<Array>& out) {
  const Frugal& frugal = FrugalOf(attrs);
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
  gradient
      .Inputs([](const NodeAttrs& attrs) {
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
