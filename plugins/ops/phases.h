/*
 * Every stride-th number of a row in a plane of its own, with AVX2: for padded_maps.h and
 * column_maps.h.
 */
#ifndef MEMONGER_OPS_PHASES_H_
#define MEMONGER_OPS_PHASES_H_

#if defined(__x86_64__) && defined(__GNUC__)
#include <type_traits>

#include "./avx.h"
#include "./ways.h"

namespace memonger {
namespace ops {

// Which lanes of kStride vectors belong to each phase, and in which order.
template <class T, int kStride, int kWidth>
struct PhaseTable {
  Index<T> its[kStride][kStride][kWidth] = {};  // -1 where a lane of vector k belongs to phase q
  int32_t from[kStride][8] = {};            // lanes of 32 bits

  constexpr PhaseTable() {
    constexpr int kParts = 8 / kWidth;
    for (int q = 0; q < kStride; ++q) {
      for (int k = 0; k < kStride; ++k) {
        for (int i = 0; i < kWidth; ++i) its[q][k][i] = (k * kWidth + i) % kStride == q ? -1 : 0;
      }
      for (int i = 0; i < 8; ++i) {
        from[q][i] = (q + i / kParts * kStride) % kWidth * kParts + i % kParts;
      }
    }
  }
};

// Split: numbers q, q + kStride, q + 2 * kStride ... of kStride vectors become to[q * kStep].
template <class T, int kStride, int kStep = 1, bool kOdd = kStride % 2 != 0>
struct Phases {  // of an even stride
  using L = Avx<T>;
  using V = typename L::V;

  MEMONGER_AVX2 static void Split(const V* v, V* to) {
    V even[kStride / 2], odd[kStride / 2];
    for (int k = 0; k < kStride / 2; ++k) {
      even[k] = L::Even(v[2 * k], v[2 * k + 1]);
      odd[k] = L::Odd(v[2 * k], v[2 * k + 1]);
    }
    Phases<T, kStride / 2, 2 * kStep>::Split(even, to);
    Phases<T, kStride / 2, 2 * kStep>::Split(odd, to + kStep);
  }
};

// The numbers of a phase are in different lanes of the vectors: they are put into one vector, then
// in order.
template <class T, int kStride, int kStep>
struct Phases<T, kStride, kStep, true> {
  using L = Avx<T>;
  using V = typename L::V;

  MEMONGER_AVX2 static void Split(const V* v, V* to) {
    for (int q = 0; q < kStride; ++q) {
      V all = v[0];
      for (int k = 1; k < kStride; ++k) all = L::Pick(L::Lanes(kTable.its[q][k]), v[k], all);
      to[q * kStep] = kStride == 1 ? all : L::Permute(all, kTable.from[q]);
    }
  }

 private:
  static constexpr PhaseTable<T, kStride, L::kWidth> kTable{};
};

template <class T, int kStride, int kStep>
constexpr PhaseTable<T, kStride, Avx<T>::kWidth>
    Phases<T, kStride, kStep, true>::kTable;

// work(stride), the stride a constant from 1 to kMostPhases.
template <class Work>
inline void WithStride(int stride, Work work) {
  static_assert(kMostPhases == 8, "a case for each stride");
  switch (stride) {
    case 1: return work(std::integral_constant<int, 1>());
    case 2: return work(std::integral_constant<int, 2>());
    case 3: return work(std::integral_constant<int, 3>());
    case 4: return work(std::integral_constant<int, 4>());
    case 5: return work(std::integral_constant<int, 5>());
    case 6: return work(std::integral_constant<int, 6>());
    case 7: return work(std::integral_constant<int, 7>());
    default: return work(std::integral_constant<int, 8>());
  }
}

// A plane for each phase of a row: its phase q begins at to[starts[q]].
template <class T, int kStride>
class Planes {
  using V = typename Avx<T>::V;

 public:
  MEMONGER_AVX2 Planes(T* to, const int64_t* starts) {
    for (int q = 0; q < kStride; ++q) phases_[q] = to + starts[q];
  }

  // kStride vectors of a row, of which a vector comes to place i of each phase.
  MEMONGER_AVX2 void Put(const V* v, int64_t i) const {
    V its[kStride];
    Phases<T, kStride>::Split(v, its);
    for (int q = 0; q < kStride; ++q) Avx<T>::Put(phases_[q] + i, its[q]);
  }

 private:
  T* phases_[kStride];
};

}  // namespace ops
}  // namespace memonger
#endif

#endif  // MEMONGER_OPS_PHASES_H_
