/*
 * memonger_inplace_batch_norm: BatchNorm with an invertible activation behind it, keeping its
 * output alone (In-Place Activated BatchNorm, Rota Bulo et al., CVPR 2018).
 *
 * Backward rebuilds x-hat from the output: through the activation's inverse (identity or leaky
 * ReLU), then (z - beta) / gamma. The input is not kept, and the output may take its memory.
 *
 * Channels with a gamma near zero keep x-hat in `spare` (spare.h, attribute spare_channels).
 * Sums are made in double, so errors are smaller than those of MXNet's float32 operator.
 */
#include "ops/norms/batch_norm.h"
#include "ops/norms/chunks.h"
#include "ops/norms/spare.h"
#include "ops/register.h"

namespace memonger {
namespace ops {

namespace {

const InplaceBatchNormParam& ParamOf(const NodeAttrs& attrs) {
  return nnvm::get<InplaceBatchNormParam>(attrs.parsed);
}

void Parse(NodeAttrs* attrs) {
  ParseParam<InplaceBatchNormParam>(attrs);
  if (ParamOf(*attrs).act_type != kIdentity && !(ParamOf(*attrs).slope > 0)) {
    RefuseAttribute(Words() << "slope must be above zero, not " << ParamOf(*attrs).slope);
  }
}

bool Shape(const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
  const auto& param = ParamOf(attrs);
  if (!BatchNormShape(attrs, param.axis, in, out)) return false;
  const Channels channels((*in)[0], param.axis);
  (*out)[3] = Flat(std::max<int64_t>(1, Spares(param, channels.count) * channels.Items()));
  return true;
}

bool Type(const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
  if (!BatchNormType(attrs, in, out)) return false;
  (*out)[3] = (*out)[0];
  return true;
}

template <class A>
std::vector<int64_t> PlacesOf(const NodeAttrs& attrs, const TBlob& spare, int64_t count,
                              const A* gamma, const A* beta) {
  const auto& param = ParamOf(attrs);
  if (param.fix_gamma) return std::vector<int64_t>(count, -1);
  return SparePlaces(attrs, spare, Spares(param, count), count, gamma, beta);
}

template <class T>
void InplaceForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                    const Requests& request, const Blobs& out) {
  using A = Acc<T>;
  const auto& param = ParamOf(attrs);
  const Channels channels(in[0].shape_, param.axis);
  const bool batch = context.is_train && !param.use_global_stats;
  const T* x = in[0].dptr<T>();
  A *gamma = in[1].dptr<A>(), *mean = out[1].dptr<A>(), *invstd = out[2].dptr<A>();
  const A *beta = in[2].dptr<A>(), *moving_mean = in[3].dptr<A>(), *moving_var = in[4].dptr<A>();
  T *y = out[0].dptr<T>(), *spare = out[3].dptr<T>();
  if (param.fix_gamma) std::fill(gamma, gamma + channels.count, A(1));  // as MXNet does
  const auto place = context.is_train || context.need_grad
                         ? PlacesOf(attrs, out[3], channels.count, gamma, beta)
                         : std::vector<int64_t>(channels.count, -1);
  const int64_t items = channels.Items();
  const double below = param.act_type == kLeaky ? param.slope : 1.0;
  const auto inverse_root = [&](double square) {
    const double variance = square + param.eps;
    return variance > 0 ? 1.0 / std::sqrt(variance) : 0.0;
  };
  std::vector<double> inverse(batch ? 0 : channels.count);
  for (int64_t c = 0; c < channels.count && !batch; ++c) {
    mean[c] = moving_mean[c];
    inverse[c] = inverse_root(moving_var[c]);
    invstd[c] = static_cast<A>(inverse[c]);
  }
  channels.ForEachGroup([&](int64_t first, int lanes) {
    double center[Channels::kMany], inv[Channels::kMany], scale[Channels::kMany];
    T* keeps[Channels::kMany];  // where the lane's x-hat are kept, if they are
    Lines<A> values, results;
    const auto chunks = [&](auto visit) {  // visit(tile)
      channels.ForEachChunk([&](const Channels::Chunk& chunk) {
        const Tile tile{channels, first, lanes, chunk};
        values.Read(tile, x);
        visit(tile);
      });
    };
    if (batch) {
      double spread[Channels::kMany] = {};
      std::fill_n(center, lanes, 0.0);
      chunks([&](const Tile& tile) {
        for (int i = 0; i < lanes; ++i) AddValues(values[i], tile.chunk.length, center + i);
      });
      for (int i = 0; i < lanes; ++i) center[i] /= items;
      chunks([&](const Tile& tile) {
        for (int i = 0; i < lanes; ++i) {
          AddSquares(values[i], tile.chunk.length, center[i], spread + i);
        }
      });
      for (int i = 0; i < lanes; ++i) {
        inv[i] = inverse_root(spread[i] / items);
        mean[first + i] = static_cast<A>(center[i]);
        invstd[first + i] = static_cast<A>(inv[i]);
      }
    } else {
      for (int i = 0; i < lanes; ++i) {
        center[i] = moving_mean[first + i];
        inv[i] = inverse[first + i];
      }
    }
    for (int i = 0; i < lanes; ++i) {
      const int64_t c = first + i;
      scale[i] = inv[i] * gamma[c];
      keeps[i] = place[c] >= 0 ? spare + place[c] * items : nullptr;
    }
    chunks([&](const Tile& tile) {
      const bool done = results.Aim(tile, y, request[0]);
      for (int i = 0; i < lanes; ++i) {
        for (int64_t j = 0; keeps[i] && j < tile.chunk.length; ++j) {
          keeps[i][tile.chunk.begin + j] =
              static_cast<T>(static_cast<A>((values[i][j] - center[i]) * inv[i]));
        }
        ScaleLeaky(values[i], tile.chunk.length, center[i], scale[i], beta[first + i], below,
                   results[i]);
      }
      if (!done) results.Write(tile, request[0], y);
    });
  });
}

// in: gradient output gamma beta mean invstd spare moving_mean moving_var
template <class T>
void InplaceBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                     const Requests& request, const Blobs& out) {
  using A = Acc<T>;
  const auto& param = ParamOf(attrs);
  const Channels channels(in[1].shape_, param.axis);
  const bool batch = context.is_train && !param.use_global_stats;
  const T *gradient = in[0].dptr<T>(), *y = in[1].dptr<T>(), *spare = in[6].dptr<T>();
  const A *gamma = in[2].dptr<A>(), *beta = in[3].dptr<A>();
  const A *mean = in[4].dptr<A>(), *invstd = in[5].dptr<A>();
  A *moving_mean = in[7].dptr<A>(), *moving_var = in[8].dptr<A>();
  T* dx = out[0].dptr<T>();
  A *dgamma = out[1].dptr<A>(), *dbeta = out[2].dptr<A>();
  const auto place = PlacesOf(attrs, in[6], channels.count, gamma, beta);
  const int64_t items = channels.Items();
  const A slope = param.act_type == kLeaky ? static_cast<A>(param.slope) : A(1);
  channels.ForEachGroup([&](int64_t first, int lanes) {
    Inverse<A> how[Channels::kMany];
    double scale[Channels::kMany], sums[Channels::kMany][2] = {};
    for (int i = 0; i < lanes; ++i) {
      const int64_t c = first + i;
      scale[i] = param.fix_gamma ? 1.0 : static_cast<double>(gamma[c]);
      how[i] = {slope, beta[c], place[c] >= 0 ? A(0) : static_cast<A>(1.0 / scale[i])};
    }
    Lines<A> outputs, gradients, results;
    A dz[Channels::kChunk], hats[Channels::kChunk];
    // The gradient of the normalised value of channel first + i goes to `dz`, x-hat to `hats`.
    const auto rebuild = [&](const Tile& tile, int i) {
      const int64_t length = tile.chunk.length, spared = place[first + i];
      if (spared < 0) return UndoLeaky(outputs[i], gradients[i], length, how[i], dz, hats);
      GateLeaky(outputs[i], gradients[i], length, slope, dz);
      const T* kept = spare + spared * items + tile.chunk.begin;
      for (int64_t j = 0; j < length; ++j) hats[j] = static_cast<A>(kept[j]);
    };
    const auto chunks = [&](bool writes, auto visit) {  // visit(tile, i), with dz and hats
      channels.ForEachChunk([&](const Channels::Chunk& chunk) {
        const Tile tile{channels, first, lanes, chunk};
        outputs.Read(tile, y);
        gradients.Read(tile, gradient);
        const bool done = !writes || results.Aim(tile, dx, request[0]);
        for (int i = 0; i < lanes; ++i) {
          rebuild(tile, i);
          visit(tile, i);
        }
        if (!done) results.Write(tile, request[0], dx);
      });
    };
    const double share = 1.0 / items;
    const bool writes = request[0] != mxnet::kNullOp, at_once = writes && !batch;
    const auto combine = [&](const Tile& tile, int i) {
      Combine(dz, hats, tile.chunk.length, static_cast<A>(scale[i] * invstd[first + i]),
              batch ? static_cast<A>(sums[i][0] * share) : A(0),
              batch ? static_cast<A>(sums[i][1] * share) : A(0), results[i]);
    };
    chunks(at_once, [&](const Tile& tile, int i) {
      AddSums(dz, hats, tile.chunk.length, sums[i]);
      if (at_once) combine(tile, i);
    });
    if (writes && batch) chunks(true, combine);
    for (int i = 0; i < lanes; ++i) {
      const int64_t c = first + i;
      if (!param.fix_gamma) {
        Store(dgamma + c, request[1], static_cast<A>(sums[i][1]));
      } else if (request[1] != mxnet::kAddTo && request[1] != mxnet::kNullOp) {
        dgamma[c] = 0;
      }
      Store(dbeta + c, request[2], static_cast<A>(sums[i][0]));
      if (!batch) continue;
      const double s = invstd[c], variance = s > 0 ? 1.0 / (s * s) - param.eps : 0.0;
      moving_mean[c] = moving_mean[c] * param.momentum + mean[c] * (A(1) - param.momentum);
      moving_var[c] =
          static_cast<A>(moving_var[c] * param.momentum + variance * (A(1) - param.momentum));
    }
  });
}

MEMONGER_REAL_COMPUTE(Forward, InplaceForward, 0)
MEMONGER_REAL_COMPUTE(Backward, InplaceBackward, 1)

}  // namespace

void RegisterInplaceBatchNorm() {
  RegisterNorm("memonger_inplace_batch_norm",
               "BatchNorm with an invertible activation behind it (identity, leaky ReLU) "
               "that keeps its output alone: In-Place Activated BatchNorm.")
      .Outputs(4)
      .Parser(Parse)
      .InputNames({"data", "gamma", "beta", "moving_mean", "moving_var"})
      .OutputNames({"output", "mean", "invstd", "spare"})
      .InferShape(Shape)
      .InferType(Type)
      .InplaceFirst()
      .Compute(Forward)
      .Gradient(
          {Output(0), Input(1), Input(2), Output(1), Output(2), Output(3), Input(3), Input(4)}, 3)
      .Arguments(FieldsOf<InplaceBatchNormParam>());

  Operator("_backward_memonger_inplace_batch_norm")
      .Inputs(9)
      .Outputs(3)
      .Parser(Parse)
      .IsBackward()
      .Changes({7, 8})
      .InplaceFirst()
      .Compute(Backward);
}

}  // namespace ops
}  // namespace memonger
