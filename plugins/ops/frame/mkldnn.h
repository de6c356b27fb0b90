/* What MXNet would run instead of ours: MKLDNN's operators differ from its own at NaN. */
#ifndef MEMONGER_OPS_FRAME_MKLDNN_H_
#define MEMONGER_OPS_FRAME_MKLDNN_H_

#include <dmlc/parameter.h>

#include "ops/frame/params.h"

namespace memonger {
namespace ops {

inline bool MkldnnEnabled() {
  static const bool enabled = dmlc::GetEnv("MXNET_MKLDNN_ENABLED", true);
  return enabled;
}

// Whether MXNet's Activation and LeakyReLU are MKLDNN's for such an array on a CPU.
inline bool MkldnnActivates(const TBlob& array) {
  return MkldnnEnabled() && array.type_flag_ == mshadow::kFloat32 && array.ndim() >= 1 &&
         array.ndim() <= 5;
}

// Whether a ReLU with this `stands_for` makes NaN 0.
inline bool NanBecomesZero(int stands_for, const TBlob& array) {
  return stands_for == kForActivation && MkldnnActivates(array);
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_FRAME_MKLDNN_H_
