/*
 * Max pooling of small maps of floats or doubles with AVX2: one map in each lane.
 *
 * Maps of a few hundred numbers leave too little for vectors along their lines. Here as many maps
 * as a vector has lanes are turned, so that element i of all of them is one vector, and the elements
 * of a window are looked at in row-major order, those inside the map only.
 */
#ifndef MEMONGER_OPS_SMALL_MAPS_H_
#define MEMONGER_OPS_SMALL_MAPS_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "./avx.h"
#include "./common.h"
#include "./windows.h"

namespace memonger {
namespace ops {

template <class T> T Smallest() { return -std::numeric_limits<T>::max(); }
template <> inline half_t Smallest<half_t>() { return half_t::Binary(0xfbff); }

// Integers as wide as the numbers, so that a comparison's lanes select both.
template <class T> struct IndexFor { using type = int32_t; };
template <> struct IndexFor<double> { using type = int64_t; };
template <class T> using Index = typename IndexFor<T>::type;

template <class T>
class SmallMaps {
 public:
  explicit SmallMaps(const Windows&) {}
  // How many maps are pooled at once; 0: these maps, numbers or processors are not served.
  int Together() const { return 0; }
  // The maxima of so many maps, the maps behind each other, and the numbers of their elements in
  // the windows. False: nothing of use was done; nothing in some window is above the smallest
  // number.
  bool Pool(const T*, T*, Index<T>*) { return false; }
};

#if defined(__x86_64__) && defined(__GNUC__)
template <class T>
class TurnedMaps {
  using L = Avx<T>;
  using V = typename L::V;

 public:
  explicit TurnedMaps(const Windows& windows)
      : size_(int64_t{windows.Size()[0]} * windows.Size()[1] * windows.Size()[2]),
        outputs_(windows.RowSize()) {
    serves_ = __builtin_cpu_supports("avx2") && windows.ChannelsBehind() == 1 && outputs_ > 0 &&
              size_ <= kMost && outputs_ * windows.Volume() <= kMostTaps;
    if (!serves_) return;
    const std::vector<int64_t> offsets = windows.Offsets();
    windows.ForEachLine(0, [&](const Line& line) {
      for (int64_t i = 0; i < windows.LineLength(); ++i) {
        const int64_t origin = windows.Origin(line, i);
        windows.ForEachElement(line, [&](int32_t number, int64_t, int64_t, int64_t first,
                                         int64_t last) {
          if (i < first || i >= last) return;
          taps_.push_back({static_cast<int32_t>(origin + offsets[number]) * kMaps, number});
        });
        end_.push_back(taps_.size());
      }
    });
    turned_.Resize(Rounded(size_) * kMaps);
    best_.Resize(Rounded(outputs_) * kMaps);
    where_.Resize(Rounded(outputs_) * kMaps);
  }

  int Together() const { return serves_ ? kMaps : 0; }

  MEMONGER_AVX2
  bool Pool(const T* maps, T* y, Index<T>* numbers) {
    for (int64_t i = 0; i < size_; i += kMaps) {
      Turn(maps + i, size_, size_ - i, turned_.data() + i * kMaps, kMaps, kMaps);
    }
    V all = L::Number(0);
    const Tap* tap = taps_.data();
    for (int64_t output = 0; output < outputs_; ++output) {
      V value = L::All(Smallest<T>()), number = L::Number(-1);
      for (const Tap* const end = taps_.data() + end_[output]; tap < end; ++tap) {
        const V item = L::Load(turned_.data() + tap->place);
        TakeAbove<T>(item, L::Number(tap->number), &value, &number);
      }
      L::Put(best_.data() + output * kMaps, value);
      L::Put(where_.data() + output * kMaps, number);
      all = L::Either(all, number);
    }
    if (L::AnyNegative(all)) return false;
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
  static constexpr int64_t kMost = 4 * kMaps * kMaps;  // numbers of a map
  static constexpr int64_t kMostTaps = 8192;

  struct Tap {
    int32_t place, number;
  };

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
  bool serves_;
  std::vector<Tap> taps_;    // of all outputs, behind each other
  std::vector<size_t> end_;  // of each output's
  Buffer turned_, best_, where_;
};

template <> class SmallMaps<float> : public TurnedMaps<float> {
  using TurnedMaps<float>::TurnedMaps;
};
template <> class SmallMaps<double> : public TurnedMaps<double> {
  using TurnedMaps<double>::TurnedMaps;
};
#endif

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_SMALL_MAPS_H_
