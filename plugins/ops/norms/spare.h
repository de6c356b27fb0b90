/*
 * Channels whose normalised value cannot be rebuilt from the output, because gamma is near zero.
 *
 * From z = gamma * x-hat + beta, (z - beta) / gamma magnifies the rounding of z where |gamma| is
 * small against |beta|. Such channels keep x-hat in `spare`, a hidden output with room for a few
 * of them; if none is left, forward stops with an error rather than train badly.
 */
#ifndef MEMONGER_OPS_NORMS_SPARE_H_
#define MEMONGER_OPS_NORMS_SPARE_H_

#include <cmath>
#include <string>
#include <vector>

#include "ops/frame/params.h"

namespace memonger {
namespace ops {

// For each channel its place in `spare`, which has room for `room` of them, or -1 if x-hat can be
// rebuilt.
template <class A>
std::vector<int64_t> SparePlaces(const NodeAttrs& attrs, const TBlob& spare, int64_t room,
                                 int64_t count, const A* gamma, const A* beta) {
  const double small = SmallGamma(spare.type_flag_);
  std::vector<int64_t> place(count, -1);
  int64_t used = 0;
  for (int64_t c = 0; c < count; ++c) {
    const double g = std::abs(static_cast<double>(gamma[c]));
    const bool near_zero = g < small * std::abs(static_cast<double>(beta[c])) || g < 1e-6;
    if (!near_zero) continue;  // NaN is not: what is rebuilt is NaN, as the input's x-hat
    if (used == room) {
      Refuse(attrs, Words() << "gamma is near zero in more than " << room << " of " << count
                            << " channels (channel " << c << ": gamma " << gamma[c] << ", beta "
                            << beta[c] << "), so the input cannot be rebuilt from the output; "
                            << "plan without this variant, or set spare_channels");
    }
    place[c] = used++;
  }
  return place;
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_NORMS_SPARE_H_
