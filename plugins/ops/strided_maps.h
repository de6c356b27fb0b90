/*
 * Max pooling of maps of floats or doubles with AVX2 where windows share few columns or none: no map
 * is copied.
 */
#ifndef MEMONGER_OPS_STRIDED_MAPS_H_
#define MEMONGER_OPS_STRIDED_MAPS_H_

#include <algorithm>
#include <vector>

#include "./avx.h"
#include "./common.h"
#include "./numbers.h"
#include "./ways.h"
#include "./window_rows.h"
#include "./windows.h"

namespace memonger {
namespace ops {

template <class T> class AvxStridedMaps;
template <class T> using StridedMaps = IfServed<AvxStridedMaps, T>;

#if defined(__x86_64__) && defined(__GNUC__)
// A vector holds neighbouring outputs: of the map where all windows lie inside it, else of a line.
// The elements of their windows come from memory a few columns at a time, row by row, for hardly one
// is in several windows of a line. Columns are read beyond the windows, the sides of the map and
// the last output of a line, and what is there is not used; where that would reach over the ends of
// all maps, and in maps or lines of very few outputs, windows are looked at one by one.
template <class T>
class AvxStridedMaps {
  using L = Avx<T>;
  using V = typename L::V;

 public:
  // The maps lie between `begin` and `end`: nothing else is read.
  AvxStridedMaps(const Windows& windows, const T* begin, const T* end)
      : windows_(windows), rows_(windows), begin_(begin), end_(end), kernel_(windows.Kernel()[2]),
        stride_(windows.Stride()[2]), pad_(windows.Pad()[2]), size_(windows.Size()[2]),
        length_(windows.Output()[2]), read_((kernel_ + kColumns - 1) / kColumns * kColumns),
        ahead_(int64_t{4} * windows.Stride()[1] * size_), inside_(windows.AreInside()),
        serves_(Serves(Way::kStrided, windows)) {
    if (!serves_) return;
    const int64_t outputs = inside_ ? windows.RowSize() : length_;
    together_ = 2 * outputs > kVector || kernel_ < kVector;
    first_ = std::min((pad_ + stride_ - 1) / stride_, length_);
    const int room = size_ + pad_ - kernel_;  // for the first columns of windows
    last_ = std::max(first_, room < 0 ? 0 : std::min(length_, room / stride_ + 1));
    if (inside_) {
      windows.ForEachLine(0, [&](const Line& line) { rows_.Find(line); });  // alike in all lines
      const std::vector<int64_t> origins = windows.Origins();
      places_.assign(origins.begin(), origins.end());
      while (places_.size() < kVector) places_.push_back(places_.back());
    } else {
      for (int i = 0; i < kVector; ++i) places_.push_back(i * stride_);
    }
  }

  template <class N>
  bool Pool(const T* map, T* y, N* numbers) {
    if (!serves_) return false;
    if (inside_) {
      PoolInside(map, y, numbers);
    } else {
      windows_.ForEachLine(0, [&](const Line& line) {
        rows_.Find(line);
        PoolLine(map + windows_.Origin(line, 0), y + line.row_position,
                 numbers + line.row_position);
      });
    }
    return true;
  }

 private:
  static constexpr int kVector = L::kWidth, kColumns = L::kColumns;

  template <class N>
  MEMONGER_AVX2 void PoolInside(const T* map, T* y, N* numbers) const {
    const int outputs = static_cast<int>(windows_.RowSize());
    const int count = outputs < kVector ? outputs : kVector;
    for (int i = 0; i < outputs; i += kVector) {
      const int from = std::min(i, outputs - count);  // some are found once more
      PoolGroup<false>(Group{map, &places_[from], 0, count}, y + from, numbers + from);
    }
  }

  // The window of output 0 begins at x, which may be padding.
  template <class N>
  MEMONGER_AVX2 void PoolLine(const T* x, T* y, N* numbers) const {
    const int count = length_ < kVector ? length_ : kVector;
    for (int i = 0; i < length_; i += kVector) {
      const int from = std::min(i, length_ - count);
      const int64_t begin = int64_t{from} * stride_;
      const Group group{x + begin, places_.data(), static_cast<int>(begin) - pad_, count};
      if (from >= first_ && from + count <= last_) {
        PoolGroup<false>(group, y + from, numbers + from);
      } else {
        PoolGroup<true>(group, y + from, numbers + from);
      }
    }
  }

  // The windows of output i begin at x[places[i]], the first of them in column `column`.
  struct Group {
    const T* x;
    const int32_t* places;
    int column, count;
  };

  // Without kAtASide all windows lie between the sides of the map.
  template <bool kAtASide, class N>
  MEMONGER_AVX2 void PoolGroup(const Group& group, T* y, N* numbers) const {
    if (together_ && IsReadable(group)) {
      PoolMany<kAtASide>(group, y, numbers);
      return;
    }
    for (int i = 0; i < group.count; ++i) {
      PoolOne(group.x + group.places[i], kAtASide ? group.column + i * stride_ : 0, y + i,
              numbers + i);
    }
  }

  // Whether all that is read are numbers, of whichever map.
  bool IsReadable(const Group& group) const {
    const auto& rows = rows_.Found();
    return rows.empty() ||
           (group.x + rows.front().offset >= begin_ &&
            group.x + group.places[kVector - 1] + rows.back().offset + read_ <= end_);
  }

  template <bool kAtASide, class N>
  MEMONGER_AVX2 void PoolMany(const Group& group, T* y, N* numbers) const {
    V value = L::All(Smallest<T>()), number = L::Number(-1);
    const V places = L::Numbers(group.column, stride_), one = L::Number(1);
    for (const auto& row : rows_.Found()) {
      const T* const x = group.x + row.offset;
      V its = L::Number(row.number);
      // Processors foresee whole maps, not rows that lie apart.
      Prefetch(x + group.places[0] + ahead_, kVector * stride_);
      for (int column = 0; column < kernel_; column += kColumns) {
        V columns[kColumns];
        L::Columns(x + column, group.places, columns);
        for (int k = 0; k < kColumns; ++k) {
          if (k > 0 && column + k >= kernel_) break;
          V item = columns[k];
          if (kAtASide) {
            const V place = L::Add(places, L::Number(column + k));
            item = L::Pick(L::Within(place, size_), item, L::All(Smallest<T>()));
          }
          TakeAbove<T>(item, its, &value, &number);
          its = L::Add(its, one);
        }
      }
    }
    PutOutputs<T>(value, number, group.count, y, numbers);
  }

  // The window at x, the first of whose columns is `start`: a lane holds every kVector-th of them.
  template <class N>
  MEMONGER_AVX2 void PoolOne(const T* x, int start, T* y, N* its_number) const {
    const int begin = std::max(0, -start), end = std::min(kernel_, size_ - start);
    const V smallest = L::All(Smallest<T>()), lanes = L::Numbers(0, 1);
    V value = smallest, number = L::Number(-1);
    for (const auto& row : rows_.Found()) {
      const T* const from = x + row.offset;
      for (int k = begin; k < end; k += kVector) {
        const V item = end - k >= kVector ? L::Load(from + k)
                                          : L::LoadSome(from + k, end - k, smallest);
        TakeAbove<T>(item, L::Add(lanes, L::Number(row.number + k)), &value, &number);
      }
    }
    PutLargest<T>(value, number, y, its_number);
  }

  const Windows& windows_;
  WindowRows rows_;
  const T *const begin_, *const end_;
  const int kernel_, stride_, pad_, size_, length_;
  const int read_;         // columns of a window, with those that are read for nothing
  const int64_t ahead_;    // from a row to the one that will be wanted four lines later
  const bool inside_;      // no window reaches into padding
  const bool serves_;
  bool together_ = false;  // neighbouring outputs, unless they are too few to fill vectors
  int first_ = 0, last_ = 0;  // outputs of a line whose windows lie between the sides of the map
  std::vector<int32_t> places_;  // of all windows in a map that are inside it, else in a vector
};
#endif

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_STRIDED_MAPS_H_
