/*
 * Max pooling of maps of floats or doubles with AVX2 where windows are large and overlap.
 */
#ifndef MEMONGER_OPS_COLUMN_MAPS_H_
#define MEMONGER_OPS_COLUMN_MAPS_H_

#include <algorithm>
#include <vector>

#include "./avx.h"
#include "./common.h"
#include "./numbers.h"
#include "./phases.h"
#include "./ways.h"
#include "./window_rows.h"
#include "./windows.h"

namespace memonger {
namespace ops {

template <class T> class AvxColumnMaps;
template <class T> using ColumnMaps = IfServed<AvxColumnMaps, T>;

#if defined(__x86_64__) && defined(__GNUC__)
// Not all elements of a window are compared: the maximum of each column is found first, for all
// windows of a line that have the column, then the largest of a window's columns, of equal ones
// that with the smallest number, which is the first element in row-major order. Maps are read where
// they are; only columns' maxima are padded, and put into a plane for each phase of the stride.
// Where strides are large or a line has very few outputs, a vector holds columns of one window.
template <class T>
class AvxColumnMaps {
  using L = Avx<T>;
  using V = typename L::V;

 public:
  explicit AvxColumnMaps(const Windows& windows)
      : windows_(windows), rows_(windows), kernel_(windows.Kernel()[2]),
        stride_(windows.Stride()[2]), length_(windows.Output()[2]),
        used_(std::min(windows.Size()[2], (length_ - 1) * stride_ + kernel_ - windows.Pad()[2])),
        serves_(Serves(Way::kColumns, windows)) {
    if (!serves_) return;
    together_ = stride_ <= kMostPhases && (2 * length_ > kVector || kernel_ < kVector);
    phases_ = together_ ? stride_ : 1;
    const int width = length_ * stride_ + kernel_;
    const int64_t plane = (width / phases_ / kVector + 3) * kVector;
    for (int q = 0; q < phases_; ++q) {
      const int column = q + windows.Pad()[2];
      starts_[q] = column % phases_ * plane + column / phases_;
    }
    for (int k = 0; k < kernel_; ++k) places_.push_back(k % phases_ * plane + k / phases_);
    line_ = plane * phases_;
    band_ = std::max<int64_t>(4, kBand / line_);
    for (int64_t line = 0; line < band_; ++line) {
      for (int i = 0; i < length_; i += kVector) {
        const int64_t first = std::max(0, std::min(i, length_ - kVector));
        groups_.push_back({line * line_ + first, line * length_ + first});  // some are found twice
      }
    }
    best_.assign(band_ * line_, Smallest<T>());
    where_.assign(band_ * line_, 0);
    NoNumbers();
  }

  template <class N>
  MEMONGER_AVX2 bool Pool(const T* map, T* y, N* numbers) {
    if (!serves_) return false;
    int64_t lines = 0, done = 0;
    const auto pool = [&] {
      PoolLines(lines, y + done, numbers + done);
      done += lines * length_;
      lines = 0;
    };
    windows_.ForEachLine(0, [&](const Line& line) {
      rows_.Find(line);
      const T* const x = map + windows_.Origin(line, 0) + windows_.Pad()[2];
      WithStride(phases_, [&](auto phases) {
        FindColumns<decltype(phases)::value>(x, lines * line_);
      });
      if (++lines == band_) pool();
    });
    pool();
    return true;
  }

 private:
  static constexpr int kVector = L::kWidth;
  static constexpr int64_t kBand = 8192 / sizeof(T);  // columns, about
  static constexpr int kMany = 4;

  // Neighbouring outputs: where their first columns are, and which they are.
  struct Group {
    int64_t from, to;
  };

  MEMONGER_AVX2 void NoNumbers() {
    for (int64_t i = 0; i < band_ * line_; i += kVector) L::Put(&where_[i], L::Number(-1));
  }

  // The maxima of the columns of a line, whose windows begin in the row at x.
  template <int kPhases>
  MEMONGER_AVX2 void FindColumns(const T* x, int64_t to) {
    constexpr int kAtOnce = kPhases % 3 == 0 ? 3 : kMany, kBlock = std::max(kPhases, kAtOnce);
    const Planes<T, kPhases> best(best_.data() + to, starts_), where(where_.data() + to, starts_);
    V value[kBlock], number[kBlock];
    int64_t i = 0;
    for (int left = used_; left > 0; left -= kBlock * kVector, x += kBlock * kVector) {
      for (int k = 0; k < kBlock;) {
        const int there = left - k * kVector;
        if (k + kAtOnce <= kBlock && there >= kAtOnce * kVector) {
          FindVectors<kAtOnce>(x + k * kVector, value + k, number + k);
          k += kAtOnce;
        } else {
          FindVector(x + k * kVector, there, value + k, number + k);
          ++k;
        }
      }
      for (int k = 0; k < kBlock && k * kVector < left; k += kPhases, i += kVector) {
        best.Put(value + k, i);
        where.Put(number + k, i);
      }
    }
  }

  template <int kVectors>
  MEMONGER_AVX2 void FindVectors(const T* x, V* value, V* number) const {
    V best[kVectors], where[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      best[v] = L::All(Smallest<T>());
      where[v] = L::Number(-1);
    }
    for (const auto& row : rows_.Found()) {
      const V its = L::Number(row.number);
      for (int v = 0; v < kVectors; ++v) {
        TakeAbove<T>(L::Load(x + row.offset + v * kVector), its, &best[v], &where[v]);
      }
    }
    std::copy(best, best + kVectors, value);
    std::copy(where, where + kVectors, number);
  }

  // As many columns as there are, up to a vector of them.
  MEMONGER_AVX2 void FindVector(const T* x, int there, V* value, V* number) const {
    if (there >= kVector) {
      FindVectors<1>(x, value, number);
      return;
    }
    const V smallest = L::All(Smallest<T>());
    *value = smallest;
    *number = L::Number(-1);
    if (there <= 0) return;
    for (const auto& row : rows_.Found()) {
      TakeAbove<T>(L::LoadSome(x + row.offset, there, smallest), L::Number(row.number), value,
                   number);
    }
  }

  template <class N>
  MEMONGER_AVX2 void PoolLines(int64_t lines, T* y, N* numbers) const {
    if (!together_) {
      for (int64_t i = 0; i < lines * length_; ++i) {
        const int64_t from = i / length_ * line_ + i % length_ * stride_;
        PoolOne(best_.data() + from, where_.data() + from, y + i, numbers + i);
      }
      return;
    }
    const Group* group = groups_.data();
    const Group* const end = group + groups_.size() * lines / band_;
    for (; group + kMany <= end; group += kMany) PoolGroups<kMany>(group, y, numbers);
    for (; group < end; ++group) PoolGroups<1>(group, y, numbers);
  }

  template <int kGroups, class N>
  MEMONGER_AVX2 void PoolGroups(const Group* groups, T* y, N* numbers) const {
    V value[kGroups], number[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      value[g] = L::All(Smallest<T>());
      number[g] = L::Number(-1);
    }
    const T *const best = best_.data(), *const where = where_.data();
    for (int k = 0; k < kernel_; ++k) {
      const V column = L::Number(k);
      for (int g = 0; g < kGroups; ++g) {
        const int64_t place = places_[k] + groups[g].from;
        TakeFirst<T>(L::Load(best + place), L::Add(L::Load(where + place), column), &value[g],
                     &number[g]);
      }
    }
    const int count = length_ < kVector ? length_ : kVector;
    for (int g = 0; g < kGroups; ++g) {
      PutOutputs<T>(value[g], number[g], count, y + groups[g].to, numbers + groups[g].to);
    }
  }

  // The window whose columns' maxima are at `best`: a lane holds every kVector-th of them.
  template <class N>
  MEMONGER_AVX2 void PoolOne(const T* best, const T* where, T* y, N* its_number) const {
    const V smallest = L::All(Smallest<T>()), lanes = L::Numbers(0, 1);
    V value = smallest, number = L::Number(-1);
    for (int k = 0; k < kernel_; k += kVector) {
      const V item = kernel_ - k >= kVector ? L::Load(best + k)
                                            : L::LoadSome(best + k, kernel_ - k, smallest);
      TakeFirst<T>(item, L::Add(L::Load(where + k), L::Add(lanes, L::Number(k))), &value, &number);
    }
    PutLargest<T>(value, number, y, its_number);
  }

  const Windows& windows_;
  WindowRows rows_;
  const int kernel_, stride_, length_;
  const int used_;          // columns of the map: further ones belong to no window
  const bool serves_;
  bool together_ = false;   // neighbouring outputs
  int phases_ = 1;
  int64_t line_ = 0;        // from the columns of one line to those of the next
  int64_t band_ = 0;        // lines
  int64_t starts_[kMostPhases];
  std::vector<int64_t> places_;  // of the columns of the first window
  std::vector<Group> groups_;    // of the lines of a band
  std::vector<T> best_, where_;  // the columns' maxima, and the numbers of their rows
};
#endif

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_COLUMN_MAPS_H_
