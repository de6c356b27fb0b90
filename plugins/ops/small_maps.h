/*
 * Max pooling of small maps of floats or doubles with AVX2: one map in each lane.
 *
 * Maps of a few hundred numbers leave too little for vectors along their lines. Here as many maps
 * as a vector has lanes are turned, so that element i of all of them is one vector, and the elements
 * of a window are looked at in row-major order, those inside the map only. Where that is less work,
 * the maximum of each row of a window is found first, for all windows that have the row, then the
 * first row with the largest.
 */
#ifndef MEMONGER_OPS_SMALL_MAPS_H_
#define MEMONGER_OPS_SMALL_MAPS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "./avx.h"
#include "./common.h"
#include "./numbers.h"
#include "./ways.h"
#include "./windows.h"

namespace memonger {
namespace ops {

template <class T> class TurnedMaps;
template <class T> using SmallMaps = IfServed<TurnedMaps, T>;

#if defined(__x86_64__) && defined(__GNUC__)
template <class T>
class TurnedMaps {
  using L = Avx<T>;
  using V = typename L::V;

 public:
  explicit TurnedMaps(const Windows& windows)
      : size_(int64_t{windows.Size()[0]} * windows.Size()[1] * windows.Size()[2]),
        outputs_(windows.RowSize()) {
    const int *const size = windows.Size(), *const kernel = windows.Kernel();
    const int64_t rows = int64_t{size[0]} * size[1], length = windows.Output()[2];
    const int64_t at_once = outputs_ * windows.Volume();
    const int64_t by_rows = rows * length * kernel[2] + outputs_ * kernel[0] * kernel[1];
    by_rows_ = by_rows + rows * length < at_once;
    serves_ = HasAvx2() && windows.ChannelsBehind() == 1 && outputs_ > 0 &&
              windows.Rows() >= kMaps && size_ <= MostOf(windows) &&
              std::min(at_once, by_rows) <= kMostTaps;
    if (!serves_) return;
    if (by_rows_) {
      FindRows(windows);
      row_best_.Resize(rows * length * kMaps);
      row_where_.Resize(rows * length * kMaps);
    } else {
      FindElements(windows);
    }
    turned_.Resize(Rounded(size_) * kMaps);
    best_.Resize(Rounded(outputs_) * kMaps);
    where_.Resize(Rounded(outputs_) * kMaps);
  }

  // How many maps are pooled at once; 0: these maps are not served.
  int Together() const { return serves_ ? kMaps : 0; }

  // The maxima of so many maps, the maps behind each other, and the numbers of their elements in
  // the windows. False: nothing of use was done; nothing in some window is above the smallest
  // number.
  MEMONGER_AVX2
  bool Pool(const T* maps, T* y, Index<T>* numbers) {
    Prefetch(maps + kMaps * size_, kMaps * size_);  // the next ones, meanwhile
    for (int64_t i = 0; i < size_; i += kMaps) {
      Turn(maps + i, size_, size_ - i, turned_.data() + i * kMaps, kMaps, kMaps);
    }
    const T* const turned = turned_.data();
    if (by_rows_) Find<false>(of_rows_, turned, nullptr, row_best_.data(), row_where_.data());
    const bool found = by_rows_ ? Find<true>(of_windows_, row_best_.data(), row_where_.data(),
                                             best_.data(), where_.data())
                                : Find<false>(of_windows_, turned, nullptr, best_.data(),
                                              where_.data());
    if (!found) return false;
    for (int64_t i = 0; i < outputs_; i += kMaps) {
      const int64_t left = outputs_ - i;
      Turn(best_.data() + i * kMaps, kMaps, kMaps, y + i, outputs_, left);
      Turn(where_.data() + i * kMaps, kMaps, kMaps, reinterpret_cast<T*>(numbers) + i, outputs_,
           left);
    }
    return true;
  }

 private:
  static constexpr int kMaps = L::kWidth;
  static constexpr int64_t kMostTaps = 8192;

  // Numbers of a map: more of them leave the cache. Windows of few elements side by side, as in most
  // networks, fill vectors along lines well, and vectors of doubles are filled by short ones.
  int64_t MostOf(const Windows& windows) const {
    constexpr int kSquare = kMaps * kMaps;
    if (windows.Stride()[2] == 1 && WayOf(windows) == Way::kPadded) return 4 * kSquare;
    return by_rows_ || sizeof(T) == 4 ? 16 * kSquare : 10 * kSquare;
  }

  // Where an item lies, and its number or, where items have numbers, what is added to it.
  struct Tap {
    int32_t place, number;
  };

  struct Taps {
    std::vector<Tap> all;     // of all results, behind each other
    std::vector<size_t> end;  // of each result's
    void Reserve(int64_t results, int64_t taps) {
      all.reserve(results * taps);
      end.reserve(results);
    }
    void Add(int64_t item, int number) {
      all.push_back({static_cast<int32_t>(item) * kMaps, number});
    }
    void End() { end.push_back(all.size()); }
  };

  void FindElements(const Windows& windows) {
    const std::vector<int64_t> offsets = windows.Offsets();
    of_windows_.Reserve(outputs_, windows.Volume());
    windows.ForEachLine(0, [&](const Line& line) {
      for (int64_t i = 0; i < windows.LineLength(); ++i) {
        const int64_t origin = windows.Origin(line, i);
        windows.ForEachElement(line, [&](int32_t number, int64_t, int64_t, int64_t first,
                                         int64_t last) {
          if (i >= first && i < last) of_windows_.Add(origin + offsets[number], number);
        });
        of_windows_.End();
      }
    });
  }

  void FindRows(const Windows& windows) {
    const int *const size = windows.Size(), *const kernel = windows.Kernel();
    const int length = windows.Output()[2];
    of_rows_.Reserve(int64_t{size[0]} * size[1] * length, kernel[2]);
    of_windows_.Reserve(outputs_, int64_t{kernel[0]} * kernel[1]);
    for (int64_t row = 0; row < int64_t{size[0]} * size[1]; ++row) {
      for (int i = 0; i < length; ++i) {
        const int start = i * windows.Stride()[2] - windows.Pad()[2];
        for (int k = std::max(0, -start); k < std::min(kernel[2], size[2] - start); ++k) {
          of_rows_.Add(row * size[2] + start + k, k);
        }
        of_rows_.End();
      }
    }
    windows.ForEachLine(0, [&](const Line& line) {
      for (int i = 0; i < length; ++i) {
        for (int d = line.begin[0]; d < line.end[0]; ++d) {
          for (int h = line.begin[1]; h < line.end[1]; ++h) {
            const int row = (d - line.start[0]) * kernel[1] + h - line.start[1];
            of_windows_.Add((int64_t{d} * size[1] + h) * length + i, row * kernel[2]);
          }
        }
        of_windows_.End();
      }
    });
  }

  // The largest item of each result and its number, -1 where none is above the smallest number.
  // False: that is so somewhere.
  template <bool kNumbers>
  MEMONGER_AVX2 static bool Find(const Taps& taps, const T* items, const T* numbers, T* best,
                                 T* where) {
    V all = L::Number(0);
    const Tap* tap = taps.all.data();
    for (size_t result = 0; result < taps.end.size(); ++result) {
      V value = L::All(Smallest<T>()), number = L::Number(-1);
      for (const Tap* const end = taps.all.data() + taps.end[result]; tap < end; ++tap) {
        V its = L::Number(tap->number);
        if (kNumbers) its = L::Add(its, L::Load(numbers + tap->place));
        TakeAbove<T>(L::Load(items + tap->place), its, &value, &number);
      }
      L::Put(best + result * kMaps, value);
      L::Put(where + result * kMaps, number);
      all = L::Either(all, number);
    }
    return !L::AnyNegative(all);
  }

  // Vectors in it lie in one cache line each: others take up to twice the time.
  class Buffer {
   public:
    void Resize(int64_t count) { data_.resize(count + kLine / sizeof(T)); }
    T* data() {
      return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(data_.data()) + kLine - 1) /
                                  kLine * kLine);
    }

   private:
    static constexpr uintptr_t kLine = 64;
    std::vector<T> data_;
  };

  static int64_t Rounded(int64_t count) { return (count + kMaps - 1) / kMaps * kMaps; }

  // A square of kMaps by kMaps numbers, or as many columns as are there, becomes another one, in
  // which no more than `room` columns are written.
  MEMONGER_AVX2
  static void Turn(const T* from, int64_t from_step, int64_t there, T* to, int64_t to_step,
                   int64_t room) {
    V square[kMaps];
    for (int k = 0; k < kMaps; ++k) {
      square[k] = there >= kMaps ? L::Load(from + k * from_step)
                                 : L::LoadSome(from + k * from_step, static_cast<int>(there),
                                               L::All(T(0)));
    }
    L::Transpose(square);
    for (int k = 0; k < kMaps; ++k) {
      if (room >= kMaps) {
        L::Put(to + k * to_step, square[k]);
      } else {
        L::PutSome(to + k * to_step, static_cast<int>(room), square[k]);
      }
    }
  }

  const int64_t size_, outputs_;
  bool serves_, by_rows_;
  Taps of_rows_, of_windows_;
  Buffer turned_, row_best_, row_where_, best_, where_;
};
#endif

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_SMALL_MAPS_H_
