/*
 * Batch normalisation bit for bit as MXNet's CPU operator computes it (without MKLDNN).
 *
 * The order of summation, the places where double and float meet, and the rounding of
 * intermediates to the data's dtype are MXNet's; only several channels are worked on at once.
 * Statistics and parameters are float32 for float16 data, as in MXNet. "invstd" is
 * 1 / sqrt(variance + eps).
 */
#ifndef MEMONGER_OPS_NORMS_BATCH_NORM_H_
#define MEMONGER_OPS_NORMS_BATCH_NORM_H_

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "ops/delegates/delegate.h"
#include "ops/frame/operator.h"
#include "ops/frame/params.h"
#include "ops/norms/channels.h"
#include "ops/norms/chunks.h"

namespace memonger {
namespace ops {

// Places of the moving averages among the inputs.
inline std::vector<uint32_t> MovingAverages() { return {3, 4}; }

// Inputs: data gamma beta moving_mean moving_var. Outputs: output, mean, invstd, ...
bool BatchNormShape(const NodeAttrs& attrs, int axis, ShapeVector* in, ShapeVector* out);
bool BatchNormType(const NodeAttrs& attrs, TypeVector* in, TypeVector* out);

// MXNet's own operator: forward, forward once more without moving the averages, and its gradient.
struct StockNorm {
  Delegate forward, again, backward;
};

// `attributes` may have others than BatchNorm's.
std::shared_ptr<const StockNorm> StockNormOf(const std::string& name, const Dictionary& attributes);

// What operators with a BatchNorm in front have in common: their first five inputs, the moving
// averages, which they change, and one visible output.
Operator RegisterNorm(const char* name, const char* text);

template <class T>
struct BatchNorm {
  using A = Acc<T>;
  const Channels channels;
  const double eps;
  const float momentum;
  const bool fix_gamma;

  BatchNorm(const TShape& shape, int axis, double e, float m, bool fixed)
      : channels(shape, axis), eps(e), momentum(m), fix_gamma(fixed) {}

  A InvStd(A variance) const {
    return static_cast<A>(1.0 / std::sqrt(variance + T(eps)));  // a half's sum is a half
  }

  void BatchStatistics(const T* x, int64_t first, int lanes, A* mean, A* invstd) const {
    const size_t items = channels.Items();
    A sum[Channels::kMany] = {}, square[Channels::kMany] = {};
    Lines<A> values, squares;
    channels.ForEachChunk([&](const Channels::Chunk& chunk) {
      values.Read({channels, first, lanes, chunk}, x);
      SumInOrder(values, lanes, chunk.length, sum);
    });
    for (int g = 0; g < lanes; ++g) mean[g] = sum[g] / items;
    channels.ForEachChunk([&](const Channels::Chunk& chunk) {
      const Tile tile{channels, first, lanes, chunk};
      values.Read(tile, x);
      squares.Aim(tile);
      for (int g = 0; g < lanes; ++g) Squares(values[g], chunk.length, mean[g], squares[g]);
      SumInOrder(squares, lanes, chunk.length, square);
    });
    for (int g = 0; g < lanes; ++g) {
      invstd[g] = square[g] == 0 && eps == 0.0 ? A(0) : InvStd(square[g] / items);
    }
  }

  // Mean and invstd of all channels, from the batch or from the moving averages.
  void Statistics(bool batch, const T* x, const A* moving_mean, const A* moving_var, A* mean,
                  A* invstd) const {
    for (int64_t c = 0; c < channels.count && !batch; ++c) {
      mean[c] = moving_mean[c];
      invstd[c] = InvStd(moving_var[c]);
    }
    if (!batch) return;
    channels.ForEachGroup([&](int64_t first, int lanes) {
      BatchStatistics(x, first, lanes, mean + first, invstd + first);
    });
  }

  // As MXNet does on a CPU: in backward, from the saved invstd.
  void UpdateMoving(const A* mean, const A* invstd, A* moving_mean, A* moving_var) const {
    for (int64_t c = 0; c < channels.count; ++c) {
      const A variance = static_cast<A>((1.0 / (invstd[c] * invstd[c])) - eps);
      moving_mean[c] = moving_mean[c] * momentum + mean[c] * (A(1) - momentum);
      moving_var[c] = moving_var[c] * momentum + variance * (A(1) - momentum);
    }
  }

  void StoreParameters(const Requests& request, A of_beta, A of_gamma, A* dgamma, A* dbeta) const {
    if (!fix_gamma) {
      Store(dgamma, request[1], of_gamma);
    } else if (request[1] != mxnet::kNullOp && request[1] != mxnet::kAddTo) {
      *dgamma = 0;
    }
    Store(dbeta, request[2], of_beta);
  }
};

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_NORMS_BATCH_NORM_H_
