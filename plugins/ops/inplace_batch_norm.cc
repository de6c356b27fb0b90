// Selections between numbers become SIMD only where comparisons may not trap; results are the same.
#pragma GCC optimize("no-trapping-math")
/*
 * memonger_inplace_batch_norm: BatchNorm with an invertible activation behind it, keeping its
 * output alone (In-Place Activated BatchNorm, Rota Bulo et al., CVPR 2018).
 *
 * Backward rebuilds x-hat from the output: through the activation's inverse (identity, leaky ReLU
 * or ELU), then (z - beta) / gamma. The input is not kept, and the output may take its memory.
 *
 * Channels with a gamma near zero keep x-hat in `spare` (spare.h, attribute spare_channels).
 * Sums are made in double, so errors are smaller than those of MXNet's float32 operator.
 */
#include "./batch_norm.h"
#include "./pieces.h"
#include "./register.h"
#include "./spare.h"

namespace memonger {
namespace ops {

namespace {

const InplaceBatchNormParam& ParamOf(const NodeAttrs& attrs) {
  return nnvm::get<InplaceBatchNormParam>(attrs.parsed);
}

void Parse(NodeAttrs* attrs) {
  ParseParam<InplaceBatchNormParam>(attrs);
  CHECK(ParamOf(*attrs).act_type == kIdentity || ParamOf(*attrs).slope > 0)
      << "memonger_inplace_batch_norm: slope must be above zero, not " << ParamOf(*attrs).slope;
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
  return SparePlaces(attrs.name, spare, Spares(param, count), count, gamma, beta);
}

// Elements begin to begin + length - 1 of channel c: where they are, or copied into `room`.
template <class T, class A>
const A* Read(const Channels& channels, int64_t c, int64_t begin, int64_t length, const T* array,
              A* room) {
  channels.Runs(c, begin, length, [&](int64_t offset, auto step, int64_t done, int64_t run) {
    for (int64_t i = 0; i < run; ++i) room[done + i] = static_cast<A>(array[offset + i * step]);
  });
  return room;
}
template <class A>
const A* Read(const Channels& channels, int64_t c, int64_t begin, int64_t length, const A* array,
              A* room) {
  const int64_t offset = channels.OffsetOfRun(c, begin, length);
  return offset >= 0 ? array + offset : Read<A, A>(channels, c, begin, length, array, room);
}

// Writes them as the request says.
template <class T, class A>
void Write(const Channels& channels, int64_t c, int64_t begin, int64_t length, const A* value,
           OpReqType request, T* array) {
  channels.Runs(c, begin, length, [&](int64_t offset, auto step, int64_t done, int64_t run) {
    if (request == mxnet::kAddTo) {
      for (int64_t i = 0; i < run; ++i) array[offset + i * step] += static_cast<T>(value[done + i]);
    } else if (request != mxnet::kNullOp) {
      for (int64_t i = 0; i < run; ++i) array[offset + i * step] = static_cast<T>(value[done + i]);
    }
  });
}

template <class T>
void InplaceForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                    const Requests& request, const Blobs& out) {
  using A = Acc<T>;
  constexpr int64_t kPiece = Channels::kPiece;
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
#pragma omp parallel for if (channels.Size() >= kParallelFrom)
  for (int64_t c = 0; c < channels.count; ++c) {
    A room[kPiece], z[kPiece];
    const auto pieces = [&](auto visit) {  // visit(begin, length, values)
      for (int64_t begin = 0; begin < items; begin += kPiece) {
        const int64_t length = std::min(kPiece, items - begin);
        visit(begin, length, Read(channels, c, begin, length, x, room));
      }
    };
    double center = 0, spread = 0;
    if (batch) {
      pieces([&](int64_t, int64_t length, const A* value) { AddValues(value, length, &center); });
      center /= items;
      pieces([&](int64_t, int64_t length, const A* value) {
        AddSquares(value, length, center, &spread);
      });
      spread /= items;
    } else {
      center = moving_mean[c];
      spread = moving_var[c];
    }
    const double inv = spread + param.eps > 0 ? 1.0 / std::sqrt(spread + param.eps) : 0.0;
    mean[c] = static_cast<A>(center);
    invstd[c] = static_cast<A>(inv);
    T* const keep = place[c] >= 0 ? spare + place[c] * items : nullptr;
    pieces([&](int64_t begin, int64_t length, const A* value) {
      for (int64_t i = 0; keep && i < length; ++i) {
        keep[begin + i] = static_cast<T>(static_cast<A>((value[i] - center) * inv));
      }
      ScaleLeaky(value, length, center, inv * gamma[c], beta[c], below, z);
      if (param.act_type == kElu) Elu(z, length, static_cast<A>(param.slope));
      Write(channels, c, begin, length, z, request[0], y);
    });
  }
}

// in: gradient output gamma beta mean invstd spare moving_mean moving_var
template <class T>
void InplaceBackward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                     const Requests& request, const Blobs& out) {
  using A = Acc<T>;
  constexpr int64_t kPiece = Channels::kPiece;
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
  const bool elu = param.act_type == kElu;
  const A slope = param.act_type == kIdentity ? A(1) : static_cast<A>(param.slope);
#pragma omp parallel for if (channels.Size() >= kParallelFrom)
  for (int64_t c = 0; c < channels.count; ++c) {
    const double scale = param.fix_gamma ? 1.0 : static_cast<double>(gamma[c]);
    const T* const kept = place[c] >= 0 ? spare + place[c] * items : nullptr;
    const Inverse<A> how{slope, beta[c], kept ? A(0) : static_cast<A>(1.0 / scale)};
    // Logarithms are taken once: the second walk over the channel finds x-hat here.
    static thread_local std::vector<A> cache;
    if (elu && !kept) cache.resize(items);
    A dz[kPiece], hats[kPiece], room[2][kPiece];
    // The gradient of the normalised value goes to `dz`; returns x-hat.
    const auto rebuild = [&](int64_t begin, int64_t length, bool again) -> const A* {
      const A* value = Read(channels, c, begin, length, y, room[0]);
      const A* g = Read(channels, c, begin, length, gradient, room[1]);
      if (!elu && !kept) {
        UndoLeaky(value, g, length, how, dz, hats);
        return hats;
      }
      A* hat = kept ? hats : cache.data() + begin;
      if (elu && !kept && !again) {
        UndoElu(value, g, length, how, dz, hat);
        return hat;
      }
      elu ? GateElu(value, g, length, slope, dz) : GateLeaky(value, g, length, slope, dz);
      for (int64_t i = 0; kept && i < length; ++i) hat[i] = static_cast<A>(kept[begin + i]);
      return hat;
    };
    double sums[2] = {0, 0};
    for (int64_t begin = 0; begin < items; begin += kPiece) {
      const int64_t length = std::min(kPiece, items - begin);
      const A* hat = rebuild(begin, length, false);
      AddSums(dz, hat, length, sums);
    }
    const A factor = static_cast<A>(scale * invstd[c]);
    const A p = static_cast<A>(batch ? sums[0] / items : 0);
    const A q = static_cast<A>(batch ? sums[1] / items : 0);
    for (int64_t begin = 0; begin < items && request[0] != mxnet::kNullOp; begin += kPiece) {
      const int64_t length = std::min(kPiece, items - begin);
      const A* hat = rebuild(begin, length, true);
      A* value = room[0];
      Combine(dz, hat, length, factor, p, q, value);
      Write(channels, c, begin, length, value, request[0], dx);
    }
    if (!param.fix_gamma) {
      Store(dgamma + c, request[1], static_cast<A>(sums[1]));
    } else if (request[1] != mxnet::kAddTo && request[1] != mxnet::kNullOp) {
      dgamma[c] = 0;
    }
    Store(dbeta + c, request[2], static_cast<A>(sums[0]));
    if (batch) {
      const double s = invstd[c], variance = s > 0 ? 1.0 / (s * s) - param.eps : 0.0;
      moving_mean[c] = moving_mean[c] * param.momentum + mean[c] * (A(1) - param.momentum);
      moving_var[c] = static_cast<A>(moving_var[c] * param.momentum +
                                     variance * (A(1) - param.momentum));
    }
  }
}

MEMONGER_REAL_COMPUTE(Forward, InplaceForward, 0)
MEMONGER_REAL_COMPUTE(Backward, InplaceBackward, 1)

}  // namespace

void RegisterInplaceBatchNorm() {
  RegisterNorm("memonger_inplace_batch_norm",
               "BatchNorm with an invertible activation behind it (identity, leaky ReLU, ELU) "
               "that keeps its output alone: In-Place Activated BatchNorm.")
      .Outputs(4)
      .Parser(Parse)
      .InputNames({"data", "gamma", "beta", "moving_mean", "moving_var"})
      .OutputNames({"output", "mean", "invstd", "spare"})
      .InferShape(Shape)
      .InferType(Type)
      .InplaceFirst()
      .Compute(Forward)
      .Gradient({Output(0), Input(1), Input(2), Output(1), Output(2), Output(3), Input(3),
                 Input(4)}, 3)
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
