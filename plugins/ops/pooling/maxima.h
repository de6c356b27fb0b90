/*
 * The maxima of windows line by line, and of a whole map.
 */
#ifndef MEMONGER_OPS_POOLING_MAXIMA_H_
#define MEMONGER_OPS_POOLING_MAXIMA_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "ops/frame/common.h"
#include "ops/frame/windows.h"

namespace memonger {
namespace ops {

template <class T>
T Smallest() {
  return -std::numeric_limits<T>::max();
}
template <>
inline half_t Smallest<half_t>() {
  return half_t::Binary(0xfbff);
}

// Integers as wide as the numbers, so that a comparison's lanes select both.
template <class T>
struct IndexFor {
  using type = int32_t;
};
template <>
struct IndexFor<double> {
  using type = int64_t;
};
template <class T>
using Index = typename IndexFor<T>::type;

// An element of the windows of outputs 0 to length - 1: its number in the window, and where it
// lies. `Step` may be a constant.
template <class T, class Step>
inline void Take(int32_t number, const T* from, Step step, int64_t length, T* best,
                 Index<T>* where) {
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) {
    const T value = from[i * step], old = best[i];
    const bool above = value > old;  // not where it is NaN
    best[i] = above ? value : old;
    where[i] = above ? Index<T>(number) : where[i];
  }
}

// The maxima of a line and the numbers of their elements in the windows (row-major, padding
// included), -1 where nothing is above the smallest number.
template <class T>
inline void FindMaxima(const Windows& windows, const T* x, const Line& line, T* best,
                       Index<T>* where) {
  const int64_t count = windows.LineLength();
  std::fill(best, best + count, Smallest<T>());
  std::fill(where, where + count, Index<T>(-1));
  windows.ForEachElement(
      line, [=](int32_t number, int64_t offset, int64_t step, int64_t first, int64_t last) {
        const T* const from = x + offset + first * step;
        if (step == 1) {
          Take(number, from, std::integral_constant<int64_t, 1>(), last - first, best + first,
               where + first);
        } else if (step == 2) {
          Take(number, from, std::integral_constant<int64_t, 2>(), last - first, best + first,
               where + first);
        } else {
          Take(number, from, step, last - first, best + first, where + first);
        }
      });
  if (std::find(where, where + count, Index<T>(-1)) == where + count) return;
  // The smallest number itself may be there: MXNet's backward would find it.
  windows.ForEachElement(
      line, [=](int32_t number, int64_t offset, int64_t step, int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          if (where[i] < 0 && x[offset + i * step] == best[i]) where[i] = number;
        }
      });
}

// The same for a window that is a whole map: the maximum, then where it is first.
template <class T>
inline void FindMaximum(const T* x, int64_t length, T* best, Index<T>* where) {
  constexpr int kLanes = 16;
  T top[kLanes];
  std::fill(top, top + kLanes, Smallest<T>());
  const int64_t whole = length / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) top[k] = x[i + k] > top[k] ? x[i + k] : top[k];
  }
  for (int64_t i = whole; i < length; ++i) top[0] = x[i] > top[0] ? x[i] : top[0];
  *best = *std::max_element(top, top + kLanes);
  const T* const found = std::find(x, x + length, *best);
  *where = found == x + length ? Index<T>(-1) : static_cast<Index<T>>(found - x);
  if (*where >= 0) *best = *found;  // of zeros with signs the first
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_POOLING_MAXIMA_H_
