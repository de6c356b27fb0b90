/*
 * memonger_layer_norm: LayerNorm that keeps its output, where MXNet's keeps its input.
 *
 * The output is mostly kept anyway, by the dense layer that reads it. Backward rebuilds x-hat as
 * (y - beta) / gamma; channels with a gamma near zero keep it in `spare` (spare.h). Sums are made
 * in double, so errors are smaller than those of MXNet's float32 operator.
 */
#include "ops/frame/operator.h"
#include "ops/norms/channels.h"
#include "ops/norms/spare.h"
#include "ops/register.h"

namespace memonger {
namespace ops {
namespace {

// As kParallelFrom, for elements that take several times as long.
constexpr int64_t kRowsFrom = 4096;

const LayerNormParam& ParamOf(const NodeAttrs& attrs) {
  return nnvm::get<LayerNormParam>(attrs.parsed);
}

void Parse(NodeAttrs* attrs) {
  ParseParam<LayerNormParam>(attrs);
  if (ParamOf(*attrs).output_mean_var) {
    RefuseAttribute("output_mean_var must be false: mean and variance are not among the outputs");
  }
}

// Inputs: data gamma beta. Outputs: output, invstd (one a row), spare.
bool Shape(const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
  const bool known = SameShape(attrs, in, out);
  const TShape& data = (*in)[0];
  if (!mxnet::ndim_is_known(data)) return false;
  const int axis = ChannelAxis(attrs, data, ParamOf(attrs).axis);
  for (int i = 1; i < 3; ++i) {
    InferParameter(attrs, i == 1 ? "gamma" : "beta", Flat(data[axis]), &(*in)[i]);
  }
  if (!known) return false;
  const Channels channels(data, axis);
  (*out)[1] = Flat(channels.Items());
  (*out)[2] = Flat(std::max<int64_t>(
      1, SpareRoom(ParamOf(attrs).spare_channels, channels.count) * channels.Items()));
  return true;
}

bool Type(const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
  if (!SameRealType(attrs, in, out)) return false;
  for (int i = 1; i < 3; ++i) {
    InferParameter(attrs, i == 1 ? "gamma" : "beta", (*in)[0], &(*in)[i]);
  }
  (*out)[1] = (*in)[0] == mshadow::kFloat16 ? mshadow::kFloat32 : (*in)[0];
  (*out)[2] = (*in)[0];
  return true;
}

// Where the channels of a row begin; they are `inner` apart.
int64_t RowOf(const Channels& channels, int64_t row) {
  return row / channels.inner * channels.count * channels.inner + row % channels.inner;
}

// work(step) with a constant step where there is one, so that loops become SIMD.
template <class Work>
void WithStep(const Channels& channels, Work work) {
  if (channels.inner == 1) return work(std::integral_constant<int64_t, 1>());
  work(channels.inner);
}

template <class T>
void NormForward(const NodeAttrs& attrs, const OpContext& context, const Blobs& in,
                 const Requests& request, const Blobs& out) {
  using A = Acc<T>;
  const Channels channels(in[0].shape_, ChannelAxis(attrs, in[0].shape_, ParamOf(attrs).axis));
  const int64_t count = channels.count, rows = channels.Items();
  const T *x = in[0].dptr<T>(), *gamma = in[1].dptr<T>(), *beta = in[2].dptr<T>();
  T *y = out[0].dptr<T>(), *spare = out[2].dptr<T>();
  A* invstd = out[1].dptr<A>();
  const double eps = ParamOf(attrs).eps;
  const OpReqType how = request[0];
  std::vector<std::pair<int64_t, int64_t>> spares;  // a channel and its place
  if (context.is_train || context.need_grad) {
    const std::vector<int64_t> place = SparePlaces(
        attrs, out[2], SpareRoom(ParamOf(attrs).spare_channels, count), count, gamma, beta);
    for (int64_t c = 0; c < count; ++c) {
      if (place[c] >= 0) spares.emplace_back(c, place[c]);
    }
  }
  WithStep(channels, [&](auto step) {
    ForEach(rows, 1, channels.Size() >= kRowsFrom, [=, &spares](int64_t row) {
      const T* from = x + RowOf(channels, row);
      double sum = 0, square = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < count; ++c) sum += static_cast<A>(from[c * step]);
      const double mean = sum / count;
#pragma omp simd reduction(+ : square)
      for (int64_t c = 0; c < count; ++c) {
        const double d = static_cast<A>(from[c * step]) - mean;
        square += d * d;
      }
      const double inv = 1.0 / std::sqrt(square / count + eps);
      invstd[row] = static_cast<A>(inv);
      for (const auto& its : spares) {
        const double hat = (static_cast<A>(from[its.first * step]) - mean) * inv;
        spare[its.second * rows + row] = static_cast<T>(static_cast<A>(hat));
      }
      if (how == mxnet::kNullOp) return;
      T* to = y + RowOf(channels, row);
      const bool add = how == mxnet::kAddTo;
      for (int64_t c = 0; c < count; ++c) {
        const double hat = (static_cast<A>(from[c * step]) - mean) * inv;
        const T z = static_cast<T>(
            static_cast<A>(hat * static_cast<A>(gamma[c]) + static_cast<A>(beta[c])));
        to[c * step] = add ? T(to[c * step] + z) : z;
      }
    });
  });
}

// in: gradient output gamma beta invstd spare
template <class T>
void NormBackward(const NodeAttrs& attrs, const OpContext&, const Blobs& in,
                  const Requests& request, const Blobs& out) {
  using A = Acc<T>;
  constexpr int64_t kShares = 16;  // of the rows; sums do not depend on the number of threads
  const Channels channels(in[1].shape_, ChannelAxis(attrs, in[1].shape_, ParamOf(attrs).axis));
  const int64_t count = channels.count, rows = channels.Items();
  const T *g = in[0].dptr<T>(), *y = in[1].dptr<T>(), *spare = in[5].dptr<T>();
  const T *gamma = in[2].dptr<T>(), *beta = in[3].dptr<T>();
  const A* invstd = in[4].dptr<A>();
  T* dx = out[0].dptr<T>();
  const OpReqType how = request[0];
  const auto place = SparePlaces(attrs, in[5], SpareRoom(ParamOf(attrs).spare_channels, count),
                                 count, gamma, beta);
  std::vector<double> scale(count), shift(count), inverse(count), sums(2 * kShares * count, 0.0);
  std::vector<int64_t> kept;
  for (int64_t c = 0; c < count; ++c) {
    scale[c] = static_cast<A>(gamma[c]);
    shift[c] = static_cast<A>(beta[c]);
    inverse[c] = place[c] < 0 ? 1.0 / scale[c] : 0.0;
    if (place[c] >= 0) kept.push_back(c);
  }
  WithStep(channels, [&](auto step) {
    const auto sum_share = [=, &channels, &place, &scale, &shift, &inverse, &sums,
                            &kept](int64_t share) {
      double* __restrict of_gamma = sums.data() + 2 * share * count;
      double* __restrict of_beta = of_gamma + count;
      std::vector<double> hats(count), gradients(count);
      double* __restrict hat = hats.data(), * __restrict dz = gradients.data();
      for (int64_t row = rows * share / kShares; row < rows * (share + 1) / kShares; ++row) {
        const int64_t offset = RowOf(channels, row);
        for (int64_t c = 0; c < count; ++c) {
          dz[c] = static_cast<A>(g[offset + c * step]);
          hat[c] = (static_cast<A>(y[offset + c * step]) - shift[c]) * inverse[c];
        }
        for (int64_t c : kept) hat[c] = static_cast<A>(spare[place[c] * rows + row]);
        double sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
        for (int64_t c = 0; c < count; ++c) {
          of_gamma[c] += dz[c] * hat[c];
          of_beta[c] += dz[c];
          dz[c] *= scale[c];
          sum += dz[c];
          dot += dz[c] * hat[c];
        }
        if (how == mxnet::kNullOp) continue;
        const double p = sum / count, q = dot / count, inv = invstd[row];
        const bool add = how == mxnet::kAddTo;
        for (int64_t c = 0; c < count; ++c) {
          const T value = static_cast<T>(static_cast<A>((dz[c] - p - hat[c] * q) * inv));
          T* to = dx + offset + c * step;
          *to = add ? T(*to + value) : value;
        }
      }
    };
    ForEach(kShares, 1, channels.Size() >= kRowsFrom, sum_share);
  });
  for (int64_t c = 0; c < count; ++c) {
    double of_gamma = 0, of_beta = 0;
    for (int64_t share = 0; share < kShares; ++share) {
      of_gamma += sums[2 * share * count + c];
      of_beta += sums[(2 * share + 1) * count + c];
    }
    Store(out[1].dptr<T>() + c, request[1], static_cast<A>(of_gamma));
    Store(out[2].dptr<T>() + c, request[2], static_cast<A>(of_beta));
  }
}

MEMONGER_REAL_COMPUTE(Forward, NormForward, 0)
MEMONGER_REAL_COMPUTE(Backward, NormBackward, 1)

}  // namespace

void RegisterLayerNorm() {
  Operator("memonger_layer_norm")
      .Text("LayerNorm that keeps its output, where LayerNorm keeps its input.")
      .Inputs(3)
      .Outputs(3)
      .Parser(Parse)
      .VisibleOutputs(1)
      .InputNames({"data", "gamma", "beta"})
      .OutputNames({"output", "invstd", "spare"})
      .InferShape(Shape)
      .InferType(Type)
      .InplaceFirst()
      .Compute(Forward)
      .Gradient({Output(0), Input(1), Input(2), Output(1), Output(2)}, 3)
      .Argument("data", "Input.")
      .Argument("gamma", "Scale.")
      .Argument("beta", "Shift.")
      .Arguments(FieldsOf<LayerNormParam>());

  Operator("_backward_memonger_layer_norm")
      .Inputs(6)
      .Outputs(3)
      .Parser(Parse)
      .IsBackward()
      .InplaceFirst()
      .Compute(Backward);
}

}  // namespace ops
}  // namespace memonger
