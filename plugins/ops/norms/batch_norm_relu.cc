/*
 * memonger_batch_norm_relu: BatchNorm and ReLU in one, keeping BatchNorm's input alone.
 *
 * In MXNet the pair keeps BatchNorm's input and ReLU's output. ReLU's output cannot be inverted
 * (InPlace-ABN needs an invertible activation), but no mask is needed either: backward has the
 * input and the statistics, so the sign of the normalised value is computed again, bit for bit.
 */
#include "ops/norms/batch_norm_relu.h"

#include <algorithm>

#include "ops/frame/mkldnn.h"
#include "ops/norms/batch_norm.h"
#include "ops/norms/chunks.h"
#include "ops/register.h"

namespace memonger {
namespace ops {
namespace {

const BatchNormParam& ParamOf(const NodeAttrs& attrs) {
  return nnvm::get<BatchNormParam>(attrs.parsed);
}

// What chunks.h has for float and double, for float16: each result is rounded to it, as in MXNet.
half_t Normalised(half_t x, const NormThenRelu<float>& how) {
  return ((x - how.mean) * how.invstd) * how.gamma + how.beta;
}

half_t BehindRelu(half_t x, half_t g, const NormThenRelu<float>& how) {
  const half_t z = Normalised(x, how), zero(0.0f);
  return g * (z > zero ? half_t(1.0f) : how.nan_matters && z != z ? z : zero);
}

void NormReluOutput(const half_t* x, int64_t length, const NormThenRelu<float>& how, half_t* y) {
  for (int64_t i = 0; i < length; ++i) {
    const half_t z = Normalised(x[i], how), zero(0.0f);
    y[i] = how.nan_matters ? (z <= zero ? zero : z) : (z > zero ? z : zero);
  }
}

void ReluTerms(const half_t* x, const half_t* g, int64_t length, const NormThenRelu<float>& how,
               float* dz, float* products) {
  for (int64_t i = 0; i < length; ++i) {
    const half_t gradient = BehindRelu(x[i], g[i], how);
    dz[i] = gradient;
    products[i] = (x[i] - how.mean) * gradient;
  }
}

void ReluGradient(const half_t* x, const half_t* g, int64_t length, const NormThenRelu<float>& how,
                  float shift, float slope, float scale, half_t* to) {
  for (int64_t i = 0; i < length; ++i) {
    const half_t part = how.of_batch ? (x[i] - how.mean) * slope : half_t(0.0f);
    to[i] = (BehindRelu(x[i], g[i], how) - shift - part) * scale;
  }
}

// The sums over channels that backward needs: of ReLU's gradient dz and of (x - mean) * dz.
// Front to back, as MXNet makes them.
template <class T>
class InOrder {
  using A = Acc<T>;

 public:
  void Add(const Tile& tile, const Lines<T>& x, const Lines<T>& g, const NormThenRelu<A>* how) {
    terms_.Aim(tile);
    products_.Aim(tile);
    for (int lane = 0; lane < tile.lanes; ++lane) {
      ReluTerms(x[lane], g[lane], tile.chunk.length, how[lane], terms_[lane], products_[lane]);
    }
    SumInOrder(terms_, tile.lanes, tile.chunk.length, sums_);
    SumInOrder(products_, tile.lanes, tile.chunk.length, dots_);
  }
  A Sum(int lane) const { return sums_[lane]; }
  A Dot(int lane) const { return dots_[lane]; }

 private:
  A sums_[Channels::kMany] = {}, dots_[Channels::kMany] = {};
  Lines<A> terms_, products_;
};

// Beside MKLDNN, whose sums are not MXNet's own to the last bit either: wide loops.
class InDouble {
 public:
  void Add(const Tile& tile, const Lines<float>& x, const Lines<float>& g,
           const NormThenRelu<float>* how) {
    for (int lane = 0; lane < tile.lanes; ++lane) {
      AddReluSums(x[lane], g[lane], tile.chunk.length, how[lane], sums_[lane]);
    }
  }
  double Sum(int lane) const { return sums_[lane][0]; }
  double Dot(int lane) const { return sums_[lane][1]; }

 private:
  double sums_[Channels::kMany][2] = {};
};

template <class T>
struct NormRelu : BatchNorm<T> {
  using A = Acc<T>;
  using BatchNorm<T>::channels;
  using BatchNorm<T>::fix_gamma;
  const bool nan_matters;

  NormRelu(const BatchNormParam& param, const TBlob& data)
      : BatchNorm<T>(data.shape_, param.axis, param.eps, param.momentum, param.fix_gamma),
        nan_matters(!NanBecomesZero(param.stands_for, data)) {}

  void Prepare(bool batch, const Blobs& in, const Blobs& statistics) const {
    this->Statistics(batch, in[0].dptr<T>(), in[3].dptr<A>(), in[4].dptr<A>(),
                     statistics[1].dptr<A>(), statistics[2].dptr<A>());
    A* gamma = in[1].dptr<A>();
    if (fix_gamma) std::fill(gamma, gamma + channels.count, A(1));  // as MXNet does
  }

  NormThenRelu<A> HowOf(int64_t c, const A* gamma, const A* beta, const A* mean,
                        const A* invstd) const {
    return {mean[c], invstd[c], fix_gamma ? A(1) : gamma[c], beta[c], nan_matters};
  }

  void Forward(const Blobs& in, const Blobs& statistics, OpReqType request,
               const TBlob& out) const {
    if (request == mxnet::kNullOp) return;
    const T* x = in[0].dptr<T>();
    T* y = out.dptr<T>();
    const A *gamma = in[1].dptr<A>(), *beta = in[2].dptr<A>();
    const A *mean = statistics[1].dptr<A>(), *invstd = statistics[2].dptr<A>();
    channels.ForEachGroup([&](int64_t first, int lanes) {
      NormThenRelu<A> how[Channels::kMany];
      for (int i = 0; i < lanes; ++i) {
        how[i] = HowOf(first + i, gamma, beta, mean, invstd);
      }
      Lines<T> values, results;
      channels.ForEachChunk([&](const Channels::Chunk& chunk) {
        const Tile tile{channels, first, lanes, chunk};
        values.Read(tile, x);
        const bool done = results.Aim(tile, y, request);
        for (int i = 0; i < lanes; ++i) {
          NormReluOutput(values[i], chunk.length, how[i], results[i]);
        }
        if (!done) results.Write(tile, request, y);
      });
    });
  }

  // in: (unused) data gamma beta mean invstd moving_mean moving_var
  template <class Sums>
  void Backward(bool batch, const Blobs& in, const TBlob& gradient, const Requests& request,
                const Blobs& out) const {
    const T *g = gradient.dptr<T>(), *x = in[1].dptr<T>();
    const A *gamma = in[2].dptr<A>(), *beta = in[3].dptr<A>();
    const A *mean = in[4].dptr<A>(), *invstd = in[5].dptr<A>();
    T* dx = out[0].dptr<T>();
    if (batch) this->UpdateMoving(mean, invstd, in[6].dptr<A>(), in[7].dptr<A>());
    const size_t items = channels.Items();
    channels.ForEachGroup([&](int64_t first, int lanes) {
      NormThenRelu<A> how[Channels::kMany];
      for (int i = 0; i < lanes; ++i) {
        how[i] = HowOf(first + i, gamma, beta, mean, invstd);
        how[i].of_batch = batch;
      }
      Sums sums;
      Lines<T> values, gradients, results;
      channels.ForEachChunk([&](const Channels::Chunk& chunk) {
        const Tile tile{channels, first, lanes, chunk};
        values.Read(tile, x);
        gradients.Read(tile, g);
        sums.Add(tile, values, gradients, how);
      });
      A shift[Channels::kMany] = {}, slope[Channels::kMany] = {}, scale[Channels::kMany];
      for (int i = 0; i < lanes; ++i) {
        const A s = invstd[first + i];
        const auto sum = sums.Sum(i), dot = sums.Dot(i);
        this->StoreParameters(request, sum, dot * s, out[1].dptr<A>() + first + i,
                              out[2].dptr<A>() + first + i);
        scale[i] = s * how[i].gamma;
        if (!batch) continue;
        shift[i] = sum / items;
        slope[i] = dot * s * s / items;
      }
      if (request[0] == mxnet::kNullOp) return;
      channels.ForEachChunk([&](const Channels::Chunk& chunk) {
        const Tile tile{channels, first, lanes, chunk};
        values.Read(tile, x);
        gradients.Read(tile, g);
        const bool done = results.Aim(tile, dx, request[0]);
        for (int i = 0; i < lanes; ++i) {
          ReluGradient(values[i], gradients[i], chunk.length, how[i], shift[i], slope[i], scale[i],
                       results[i]);
        }
        if (!done) results.Write(tile, request[0], dx);
      });
    });
  }
};

constexpr const char* kName = "memonger_batch_norm_relu";

void Parse(NodeAttrs* attrs) {
  ParseParam<BatchNormParam>(attrs);
  nnvm::get<BatchNormParam>(attrs->parsed).stock = StockNormOf(attrs->name, attrs->dict);
}

void Forward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
             const Requests& request, const Blobs& out) {
  const BatchNormParam& param = ParamOf(attrs);
  NormReluStatistics(param, context.is_train && !param.use_global_stats, in, out);
  NormReluForward(param, in, out, request[0], out[0]);
}

void Backward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
              const Requests& request, const Blobs& out) {
  const BatchNormParam& param = ParamOf(attrs);
  NormReluBackward(param, context.is_train && !param.use_global_stats, in, in[0], request, out);
}

}  // namespace

void NormReluStatistics(const BatchNormParam& param, bool batch, const Blobs& in,
                        const Blobs& statistics) {
  MEMONGER_REAL_SWITCH(in[0].type_flag_, kName, T,
                       NormRelu<T>(param, in[0]).Prepare(batch, in, statistics);)
}

void NormReluForward(const BatchNormParam& param, const Blobs& in, const Blobs& statistics,
                     OpReqType request, const TBlob& out) {
  MEMONGER_REAL_SWITCH(in[0].type_flag_, kName, T,
                       NormRelu<T>(param, in[0]).Forward(in, statistics, request, out);)
}

void NormReluBackward(const BatchNormParam& param, bool batch, const Blobs& in,
                      const TBlob& gradient, const Requests& request, const Blobs& out) {
  if (MkldnnActivates(in[1])) {
    NormRelu<float>(param, in[1]).Backward<InDouble>(batch, in, gradient, request, out);
    return;
  }
  MEMONGER_REAL_SWITCH(
      in[1].type_flag_, kName, T,
      NormRelu<T>(param, in[1]).template Backward<InOrder<T>>(batch, in, gradient, request, out);)
}

void RegisterBatchNormRelu() {
  RegisterNorm(kName, "BatchNorm followed by ReLU, keeping BatchNorm's input and no output.")
      .Outputs(3)
      .TempSpace()
      .Parser(Parse)
      .InputNames({"data", "gamma", "beta", "moving_mean", "moving_var"})
      .OutputNames({"output", "mean", "invstd"})
      .InferShape([](const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
        return BatchNormShape(attrs, ParamOf(attrs).axis, in, out);
      })
      .InferType(BatchNormType)
      .Compute(Forward)
      .Gradient({Input(0), Input(1), Input(2), Output(1), Output(2), Input(3), Input(4)}, 3)
      .Arguments(FieldsOf<BatchNormParam>());

  Operator("_backward_memonger_batch_norm_relu")
      .Inputs(8)
      .Outputs(3)
      .Parser(Parse)
      .IsBackward()
      .TempSpace()
      .Changes({6, 7})
      .InplaceFirst()
      .Compute(Backward);
}

}  // namespace ops
}  // namespace memonger
