/*
 * The maxima of windows line by line, and of a whole map: for all numbers, layouts and processors.
 */
#ifndef MEMONGER_OPS_MAXIMA_H_
#define MEMONGER_OPS_MAXIMA_H_

#include <algorithm>

#include "./common.h"
#include "./lanes.h"
#include "./numbers.h"
#include "./windows.h"

namespace memonger {
namespace ops {

template <class T>
inline void TakeOne(T value, int32_t number, T* best, Index<T>* where) {
  if (value > *best) {
    *best = value;
    *where = number;
  }
}

#if defined(__SSE2__)
// The same for kWidth outputs; `number` repeats the element's number in each lane.
template <class T>
inline void TakeLanes(typename Lanes<T>::V value, typename Lanes<T>::V number, T* best,
                      Index<T>* where) {
  using L = Lanes<T>;
  const auto old = L::Load(best);
  const auto above = L::Above(value, old);
  T* numbers = reinterpret_cast<T*>(where);
  L::Put(best, L::Pick(above, value, old));
  L::Put(numbers, L::Pick(above, number, L::Load(numbers)));
}

template <class T>
int64_t TakeMany(const T* from, int64_t step, int64_t first, int64_t last, int32_t number, T* best,
                 Index<T>* where) {
  using L = Lanes<T>;
  if (L::kWidth == 1 || step > 2) return first;
  Index<T> repeated[L::kWidth];
  std::fill(repeated, repeated + L::kWidth, number);
  const auto numbers = L::Load(reinterpret_cast<const T*>(repeated));
  int64_t i = first;
  if (step == 1) {
    for (; i + L::kWidth <= last; i += L::kWidth) {
      TakeLanes<T>(L::Load(from + i), numbers, best + i, where + i);
    }
  } else {  // LoadEven reads one number more than it uses: not beyond the last output
    for (; i + L::kWidth < last; i += L::kWidth) {
      TakeLanes<T>(L::LoadEven(from + 2 * i), numbers, best + i, where + i);
    }
  }
  return i;
}
template <>
inline int64_t TakeMany<half_t>(const half_t*, int64_t, int64_t first, int64_t, int32_t, half_t*,
                         int32_t*) {
  return first;
}
#else
template <class T>
int64_t TakeMany(const T*, int64_t, int64_t first, int64_t, int32_t, T*, Index<T>*) {
  return first;
}
#endif

inline int LowestBit(uint64_t bits) {
#if defined(__GNUC__)
  return __builtin_ctzll(bits);
#else
  int place = 0;
  while (!(bits >> place & 1)) ++place;
  return place;
#endif
}

// An element of the windows of a line: its number in the window, where that of output 0 is, and
// the outputs that have it inside the map.
template <class T>
struct Tap {
  int32_t number;
  const T* from;
  int64_t step, first, last;
};

template <class T>
inline void Take(const Tap<T>& tap, T* best, Index<T>* where) {
  int64_t i = TakeMany<T>(tap.from, tap.step, tap.first, tap.last, tap.number, best, where);
  for (; i < tap.last; ++i) TakeOne<T>(tap.from[i * tap.step], tap.number, best + i, where + i);
}

// The maxima of a line and the numbers of their elements in the windows (row-major, padding
// included), -1 where nothing is above the smallest number.
template <class T>
void FindMaxima(const Windows& windows, const T* x, const Line& line, T* best, Index<T>* where) {
  const int64_t length = windows.LineLength();
  std::fill(best, best + length, Smallest<T>());
  std::fill(where, where + length, -1);
  windows.ForEachElement(line, [&](int32_t number, int64_t offset, int64_t step, int64_t first,
                                   int64_t last) {
    Take(Tap<T>{number, x + offset, step, first, last}, best, where);
  });
  if (std::find(where, where + length, -1) == where + length) return;
  // The smallest number itself may be there: MXNet's backward would find it.
  windows.ForEachElement(line, [&](int32_t number, int64_t offset, int64_t step, int64_t first,
                                   int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      if (where[i] < 0 && x[offset + i * step] == best[i]) where[i] = number;
    }
  });
}

// The same for a window that is a whole map: the maximum, then where it is first.
template <class T>
void FindMaximum(const T* x, int64_t length, T* best, Index<T>* where) {
  using L = Lanes<T>;
  constexpr int kWidth = L::kWidth, kChains = 4;
  constexpr int64_t kStretch = 16 * kWidth;  // no more than 64 bits
  typename L::V top[kChains];
  std::fill(top, top + kChains, L::All(Smallest<T>()));
  int64_t i = 0;
  for (; i + kChains * kWidth <= length; i += kChains * kWidth) {
    for (int k = 0; k < kChains; ++k) top[k] = L::Max(L::Load(x + i + k * kWidth), top[k]);
  }
  for (; i + kWidth <= length; i += kWidth) top[0] = L::Max(L::Load(x + i), top[0]);
  T lanes[kWidth];
  L::Put(lanes, L::Max(L::Max(top[0], top[1]), L::Max(top[2], top[3])));
  T maximum = lanes[0];
  for (int k = 1; k < kWidth; ++k) maximum = Single<T>::Max(lanes[k], maximum);
  for (; i < length; ++i) maximum = Single<T>::Max(x[i], maximum);

  const auto all = L::All(maximum);
  for (int64_t begin = 0; begin < length; begin += kStretch) {
    const int64_t end = std::min(begin + kStretch, length);
    uint64_t found = 0;
    int64_t at = begin;
    for (; at + kWidth <= end; at += kWidth) {
      found |= uint64_t{L::Bits(L::Equal(L::Load(x + at), all))} << (at - begin);
    }
    for (; at < end; ++at) found |= uint64_t{x[at] == maximum} << (at - begin);
    if (found == 0) continue;
    const int64_t first = begin + LowestBit(found);
    *best = x[first];  // of zeros with signs the first
    *where = static_cast<Index<T>>(first);
    return;
  }
  *best = maximum;
  *where = -1;
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_MAXIMA_H_
