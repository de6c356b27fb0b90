/* Data seen as (outer, channel, inner), and plain loops over the elements of a channel. */
#ifndef MEMONGER_OPS_NORMS_CHANNELS_H_
#define MEMONGER_OPS_NORMS_CHANNELS_H_

#include <string>
#include <type_traits>

#include "ops/frame/common.h"
#include "ops/frame/refuse.h"
#include "ops/frame/vectors.h"

namespace memonger {
namespace ops {

struct Channels {
  int64_t outer = 1, count = 1, inner = 1;

  Channels(const TShape& shape, int axis) {
    if (axis < 0) axis += shape.ndim();
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    count = shape[axis];
    for (int i = axis + 1; i < shape.ndim(); ++i) inner *= shape[i];
  }
  int64_t Items() const { return outer * inner; }  // of one channel
  int64_t Size() const { return outer * count * inner; }

  // work(c) for all channels, on all threads.
  template <class Work>
  void ForEachChannel(Work work) const {
    ForEach(count, 1, Size() >= kParallelFrom, work);
  }

  // visit(first, place, length, step) for runs of elements of channel c, front to back: `length` of
  // them from the first-th on lie at place, place + step, ... `step` is a constant where it is 1.
  template <class Visit>
  void ForEachRun(int64_t c, Visit visit) const {
    const Channels all = *this;
    Vectorised([=] {
      if (all.inner == 1) return visit(int64_t{0}, c, all.outer, all.count);
      const std::integral_constant<int64_t, 1> neighbours;
      for (int64_t o = 0; o < all.outer; ++o) {
        visit(o * all.inner, (o * all.count + c) * all.inner, all.inner, neighbours);
      }
    });
  }
};

inline int ChannelAxis(const NodeAttrs& attrs, const TShape& shape, int axis) {
  const int result = axis < 0 ? axis + shape.ndim() : axis;
  if (result < 0 || result >= shape.ndim()) {
    Refuse(attrs, Words() << "Channel axis out of range: " << axis << " of data " << shape);
  }
  return result;
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_NORMS_CHANNELS_H_
