/*
 * The parameters of the operators and what follows from them: read by the CPU code of each
 * operator and by the code that launches its GPU kernels.
 */
#ifndef MEMONGER_OPS_FRAME_PARAMS_H_
#define MEMONGER_OPS_FRAME_PARAMS_H_

#include <dmlc/optional.h>

#include <memory>
#include <string>
#include <vector>

#include "ops/frame/common.h"
#include "ops/frame/windows.h"

namespace memonger {
namespace ops {

// Reads a node's attributes. Defined in params.cc for the structs below.
template <class Param>
void ParseParam(NodeAttrs* attrs);

// For documentation and generated functions.
template <class Param>
std::vector<dmlc::ParamFieldInfo> FieldsOf();

// ------------------------------------------------------------------ activations
// Which ReLU of MXNet's an operator takes the place of: they differ at NaN.
enum StandsFor { kForRelu, kForActivation };

#define MEMONGER_DECLARE_STANDS_FOR                                                              \
  DMLC_DECLARE_FIELD(stands_for)                                                                 \
      .add_enum("relu", kForRelu)                                                                \
      .add_enum("Activation", kForActivation)                                                    \
      .set_default(kForRelu)                                                                     \
      .describe(                                                                                 \
          "Treat NaN as this operator of MXNet: relu passes it on, Activation makes it 0 where " \
          "MKLDNN computes it.")

struct MaskReluParam : public dmlc::Parameter<MaskReluParam> {
  int stands_for;
  DMLC_DECLARE_PARAMETER(MaskReluParam) { MEMONGER_DECLARE_STANDS_FOR; }
};

struct MaskLeakyReluParam : public dmlc::Parameter<MaskLeakyReluParam> {
  float slope;
  DMLC_DECLARE_PARAMETER(MaskLeakyReluParam) {
    DMLC_DECLARE_FIELD(slope).set_default(0.25f).set_lower_bound(0.0f).describe(
        "Slope for negative inputs; not negative.");
  }
};

struct MaskClipParam : public dmlc::Parameter<MaskClipParam> {
  float a_min, a_max;
  bool adds;
  DMLC_DECLARE_PARAMETER(MaskClipParam) {
    DMLC_DECLARE_FIELD(a_min).describe("Smallest value of the output.");
    DMLC_DECLARE_FIELD(a_max).describe("Largest value of the output.");
    DMLC_DECLARE_FIELD(adds).set_default(true).describe(
        "Add the gradient where grad_req is add. MXNet's clip overwrites even then, and so does "
        "this operator with False.");
  }
  OpReqType GradientRequest(OpReqType asked) const {
    return asked == mxnet::kAddTo && !adds ? mxnet::kWriteTo : asked;
  }
};

// ------------------------------------------------------------------ gelu
struct GeluParam : public dmlc::Parameter<GeluParam> {
  DMLC_DECLARE_PARAMETER(GeluParam) {}
};

constexpr char kGeluCannotBeAdded[] =
    "backward reads the output, so the output cannot be added to another array";

// ------------------------------------------------------------------ dropout
enum Mode { kTraining, kAlways };

struct MaskDropoutParam : public dmlc::Parameter<MaskDropoutParam> {
  float p;
  int mode;
  dmlc::optional<bool> cudnn_off;
  DMLC_DECLARE_PARAMETER(MaskDropoutParam) {
    DMLC_DECLARE_FIELD(p).set_default(0.5f).set_range(0, 1).describe(
        "Fraction of the input that is dropped.");
    DMLC_DECLARE_FIELD(mode)
        .add_enum("training", kTraining)
        .add_enum("always", kAlways)
        .set_default(kTraining)
        .describe("Whether to drop in training only or also in inference.");
    DMLC_DECLARE_FIELD(cudnn_off)
        .set_default(dmlc::optional<bool>(false))
        .describe("Accepted for compatibility; cuDNN is never used.");
  }
};

// ------------------------------------------------------------------ max pooling
class Delegate;

struct MaxPoolParam : public dmlc::Parameter<MaxPoolParam> {
  TShape kernel, stride, pad;
  int pooling_convention;
  bool global_pool;
  bool cudnn_off;
  dmlc::optional<int> layout;
  std::shared_ptr<const Delegate> stock;  // MXNet's operator; no attribute
  DMLC_DECLARE_PARAMETER(MaxPoolParam) {
    DMLC_DECLARE_FIELD(kernel)
        .set_default(TShape(0, 0))
        .enforce_nonzero()
        .describe("Window: (x), (y, x) or (d, y, x).");
    DMLC_DECLARE_FIELD(global_pool)
        .set_default(false)
        .describe("Ignore the window and pool over the whole map.");
    DMLC_DECLARE_FIELD(cudnn_off).set_default(false).describe(
        "Accepted for compatibility; cuDNN is never used.");
    DMLC_DECLARE_FIELD(pooling_convention)
        .set_default(kValid)
        .add_enum("full", kFull)
        .add_enum("valid", kValid)
        .add_enum("same", kSame)
        .describe("How the output's size is rounded, as in Pooling.");
    DMLC_DECLARE_FIELD(stride)
        .set_default(TShape(0, 0))
        .enforce_nonzero()
        .describe("Stride; 1 by default.");
    DMLC_DECLARE_FIELD(pad).set_default(TShape(0, 0)).describe("Padding; 0 by default.");
    DMLC_DECLARE_FIELD(layout)
        .add_enum("NCW", mshadow::kNCW)
        .add_enum("NCHW", mshadow::kNCHW)
        .add_enum("NCDHW", mshadow::kNCDHW)
        .add_enum("NWC", mshadow::kNWC)
        .add_enum("NHWC", mshadow::kNHWC)
        .add_enum("NDHWC", mshadow::kNDHWC)
        .set_default(dmlc::optional<int>())
        .describe("Layout; channels first by default.");
  }
};

inline bool ChannelsLast(const MaxPoolParam& param) {
  const int layout = param.layout.has_value() ? param.layout.value() : -1;
  return layout == mshadow::kNWC || layout == mshadow::kNHWC || layout == mshadow::kNDHWC;
}

inline Windows WindowsOf(const NodeAttrs& attrs, const TShape& data) {
  const auto& param = nnvm::get<MaxPoolParam>(attrs.parsed);
  const int layout = param.layout.has_value() ? param.layout.value() : -1;
  const int axes = layout == mshadow::kNCW || layout == mshadow::kNWC     ? 3
                   : layout == mshadow::kNCHW || layout == mshadow::kNHWC ? 4
                                                                          : 5;
  if (layout >= 0 && axes != data.ndim() && !param.global_pool) {
    Refuse(attrs, Words() << "layout " << attrs.dict.at("layout") << " is not one of data of "
                          << data.ndim() << " axes, " << data);
  }
  return Windows(attrs, data, param.kernel, param.stride, param.pad,
                 static_cast<Convention>(param.pooling_convention), param.global_pool,
                 ChannelsLast(param));
}

// How the index of a maximum is kept.
enum Width { kNibble, kByte, kWord };

inline Width WidthOf(const Windows& windows) {
  return windows.Volume() <= 15 ? kNibble : windows.Volume() <= 255 ? kByte : kWord;
}

// ------------------------------------------------------------------ BatchNorm
// The attributes of MXNet's BatchNorm, for the parameters of an operator that begins with one.
template <class Param>
struct BatchNormFields : public dmlc::Parameter<Param> {
  double eps;
  float momentum;
  bool fix_gamma;
  bool use_global_stats;
  int axis;
  bool cudnn_off;

 protected:
  template <class Manager>
  void DeclareNorm(Manager* manager) {
    DMLC_DECLARE_FIELD(eps).set_default(1e-3f).describe("Added to the variance.");
    DMLC_DECLARE_FIELD(momentum).set_default(0.9f).describe("Momentum of the moving averages.");
    DMLC_DECLARE_FIELD(fix_gamma).set_default(true).describe(
        "Keep gamma at 1 and its gradient at 0.");
    DMLC_DECLARE_FIELD(use_global_stats)
        .set_default(false)
        .describe("Use the moving averages in training, too.");
    DMLC_DECLARE_FIELD(axis).set_default(1).describe("Channel axis.");
    DMLC_DECLARE_FIELD(cudnn_off).set_default(false).describe(
        "On a GPU, use MXNet's own code where that is not cuDNN.");
  }
};

struct StockNorm;

struct BatchNormParam : public BatchNormFields<BatchNormParam> {
  int stands_for;
  std::shared_ptr<const StockNorm> stock;  // MXNet's operator; no attribute
  DMLC_DECLARE_PARAMETER(BatchNormParam) {
    DeclareNorm(manager);
    MEMONGER_DECLARE_STANDS_FOR;
  }
};

enum Activation { kIdentity, kLeaky };

struct InplaceBatchNormParam : public BatchNormFields<InplaceBatchNormParam> {
  int act_type;
  float slope;
  int spare_channels;
  DMLC_DECLARE_PARAMETER(InplaceBatchNormParam) {
    DeclareNorm(manager);
    DMLC_DECLARE_FIELD(act_type)
        .add_enum("identity", kIdentity)
        .add_enum("leaky", kLeaky)
        .set_default(kIdentity)
        .describe("Activation behind.");
    DMLC_DECLARE_FIELD(slope).set_default(0.25f).describe(
        "Slope of leaky; above zero, so that the activation can be inverted.");
    DMLC_DECLARE_FIELD(spare_channels)
        .set_default(-1)
        .set_lower_bound(-1)
        .describe("How many channels may have a gamma near zero; -1: one in sixteen.");
  }
};

// gamma counts as near zero below this share of |beta|: z = gamma * x-hat + beta has lost so many
// digits of x-hat that gamma's gradient has more than about twice the error of MXNet's operator.
inline double SmallGamma(int type) { return type == mshadow::kFloat16 ? 0.2 : 0.02; }

// How many such channels there may be: `wanted`, by default (-1) one in sixteen.
inline int64_t SpareRoom(int wanted, int64_t channels) {
  return wanted >= 0 ? std::min<int64_t>(wanted, channels) : (channels + 15) / 16;
}

inline int64_t Spares(const InplaceBatchNormParam& param, int64_t channels) {
  return param.fix_gamma ? 0 : SpareRoom(param.spare_channels, channels);
}

// ------------------------------------------------------------------ LayerNorm
struct LayerNormParam : public dmlc::Parameter<LayerNormParam> {
  int axis;
  float eps;
  bool output_mean_var;
  int spare_channels;
  DMLC_DECLARE_PARAMETER(LayerNormParam) {
    DMLC_DECLARE_FIELD(axis).set_default(-1).describe("Axis to normalise over.");
    DMLC_DECLARE_FIELD(eps).set_default(1e-5f).describe("Added to the variance.");
    DMLC_DECLARE_FIELD(output_mean_var).set_default(false).describe("Must be false.");
    DMLC_DECLARE_FIELD(spare_channels)
        .set_default(-1)
        .set_lower_bound(-1)
        .describe("How many channels may have a gamma near zero; -1: one in sixteen.");
  }
};

// ------------------------------------------------------------------ convolution
struct ConvolutionWindow : public dmlc::Parameter<ConvolutionWindow> {
  TShape kernel, stride, dilate, pad;
  DMLC_DECLARE_PARAMETER(ConvolutionWindow) {
    DMLC_DECLARE_FIELD(kernel).describe("Window: (w,), (h, w) or (d, h, w).");
    DMLC_DECLARE_FIELD(stride).set_default(TShape(0, 0)).describe("Stride; 1 by default.");
    DMLC_DECLARE_FIELD(dilate).set_default(TShape(0, 0)).describe("Dilation; 1 by default.");
    DMLC_DECLARE_FIELD(pad).set_default(TShape(0, 0)).describe("Padding; 0 by default.");
  }
};

struct ConvolutionSettings : public dmlc::Parameter<ConvolutionSettings> {
  int micro_batch, micro_batch_mb;
  DMLC_DECLARE_PARAMETER(ConvolutionSettings) {
    DMLC_DECLARE_FIELD(micro_batch)
        .set_default(0)
        .set_lower_bound(0)
        .describe("Samples that the convolution works on at a time; 0: all.");
    DMLC_DECLARE_FIELD(micro_batch_mb)
        .set_default(0)
        .set_lower_bound(0)
        .describe(
            "MB of data and output in float32 that the convolution works on at a time: more where "
            "that is below eight times the weight or micro_batch samples; 0: micro_batch alone "
            "counts.");
  }
};

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_FRAME_PARAMS_H_
