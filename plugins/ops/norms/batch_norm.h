/* What the operators with a BatchNorm in front have in common. */
#ifndef MEMONGER_OPS_NORMS_BATCH_NORM_H_
#define MEMONGER_OPS_NORMS_BATCH_NORM_H_

#include <memory>
#include <string>
#include <vector>

#include "ops/delegates/delegate.h"
#include "ops/frame/operator.h"
#include "ops/frame/params.h"
#include "ops/norms/channels.h"

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

// Their first five inputs, the moving averages, which they change, and one visible output.
Operator RegisterNorm(const char* name, const char* text);

// Where gamma is fixed it is 1, in the array, too, as in MXNet.
template <class A>
void FixGamma(bool fixed, int64_t count, A* gamma) {
  if (fixed) std::fill(gamma, gamma + count, A(1));
}

// Gradients of one channel's gamma and beta; that of a gamma that is fixed is 0.
template <class A, class Sum>
void StoreParameters(bool fix_gamma, const Requests& request, Sum of_beta, Sum of_gamma, A* dgamma,
                     A* dbeta) {
  if (!fix_gamma) {
    Store(dgamma, request[1], static_cast<A>(of_gamma));
  } else if (request[1] != mxnet::kAddTo) {
    Store(dgamma, request[1], A(0));
  }
  Store(dbeta, request[2], static_cast<A>(of_beta));
}

// As MXNet does on a CPU: in backward, from the saved statistics.
template <class A, class Variance>
void MoveAverages(A mean, Variance variance, float momentum, A* moving_mean, A* moving_var) {
  *moving_mean = *moving_mean * momentum + mean * (A(1) - momentum);
  *moving_var = static_cast<A>(*moving_var * momentum + variance * (A(1) - momentum));
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_NORMS_BATCH_NORM_H_
