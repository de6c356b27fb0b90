/*
 * BatchNorm and ReLU in one, bit for bit as MXNet's two operators (batch_norm.h).
 *
 * Backward needs no mask: it has the input and the statistics, so the sign of the normalised value
 * is computed again. Data are float16, float32 or float64.
 */
#ifndef MEMONGER_OPS_NORMS_BATCH_NORM_RELU_H_
#define MEMONGER_OPS_NORMS_BATCH_NORM_RELU_H_

#include "ops/frame/common.h"
#include "ops/frame/params.h"

namespace memonger {
namespace ops {

// Writes statistics[1], [2]: mean and invstd, of the batch or from the moving averages.
// in: data gamma beta moving_mean moving_var ...
void NormReluStatistics(const BatchNormParam& param, bool batch, const Blobs& in,
                        const Blobs& statistics);

// in: data gamma beta ...
void NormReluForward(const BatchNormParam& param, const Blobs& in, const Blobs& statistics,
                     OpReqType request, const TBlob& out);

// in: (unused) data gamma beta mean invstd moving_mean moving_var; out: gradients of data, gamma
// and beta. `gradient` may be the memory of out[0].
void NormReluBackward(const BatchNormParam& param, bool batch, const Blobs& in,
                      const TBlob& gradient, const Requests& request, const Blobs& out);

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_NORMS_BATCH_NORM_RELU_H_
