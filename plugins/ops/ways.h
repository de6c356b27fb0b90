/*
 * Which of the ways to pool a map serves which windows.
 */
#ifndef MEMONGER_OPS_WAYS_H_
#define MEMONGER_OPS_WAYS_H_

#include <type_traits>

#include "./cpu.h"
#include "./windows.h"

namespace memonger {
namespace ops {

enum class Way {
  kColumns,  // column_maps.h: the maxima of columns, then of windows
  kStrided,  // strided_maps.h: element by element, from the map itself
  kPadded,   // padded_maps.h: element by element, from a padded map turned to suit
};

// Maps are turned for strides up to this one.
constexpr int kMostPhases = 8;

// The cheapest, by the instructions an output takes: three to look at an element, eight at a column
// whose maximum is known.
inline Way WayOf(const Windows& windows) {
  const int kernel = windows.Kernel()[2], stride = windows.Stride()[2];
  const int64_t columns = windows.Volume() / kernel * stride;  // elements of those that are its own
  if (3 * windows.Volume() > 3 * columns + 8 * kernel) return Way::kColumns;
  if (stride > kMostPhases) return Way::kStrided;
  return stride > 2 && kernel <= stride && windows.AreInside() ? Way::kStrided : Way::kPadded;
}

// For numbers and processors that are not served.
template <class T>
class NoMaps {
 public:
  template <class... Any>
  explicit NoMaps(const Any&...) {}
  int Together() const { return 0; }  // small_maps.h
  // The maxima of a map and the numbers of their elements in the windows, as int32_t, or as int8_t
  // where windows have up to 127 elements; -1 where nothing in a window is above the smallest
  // number. False: nothing was done, for these windows, numbers or processors are not served.
  template <class N>
  bool Pool(const T*, T*, N*) { return false; }
};

#if defined(__x86_64__) && defined(__GNUC__)
template <template <class> class Maps, class T>
using IfServed = typename std::conditional<
    std::is_same<T, float>::value || std::is_same<T, double>::value, Maps<T>, NoMaps<T>>::type;

inline bool Serves(Way way, const Windows& windows) {
  return HasAvx2() && windows.ChannelsBehind() == 1 && WayOf(windows) == way;
}
#else
template <template <class> class, class T>
using IfServed = NoMaps<T>;
#endif

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_WAYS_H_
