/*
 * Maxima of a line of windows with AVX2: what max pooling does on maps of floats.
 */
#ifndef MEMONGER_OPS_PADDED_ROWS_H_
#define MEMONGER_OPS_PADDED_ROWS_H_

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

#include <limits>
#include <vector>

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

// The rows of a map that the windows of a line read, padded, in as many phases as the stride: so
// element k of all windows is a run of numbers, from the first output to the last. Eight outputs
// are taken at a time, maxima and numbers in registers.
template <class T>
class PaddedRows {
 public:
  explicit PaddedRows(const Windows&) {}
  void NextMap() {}
  // False: nothing was done.
  bool FindMaxima(const Windows&, const T*, const Line&, T*, Index<T>*, bool*) { return false; }
};

// Buffers for a line have room for whole groups of outputs.
constexpr int64_t kGroup = 8;
inline int64_t InGroups(int64_t length) { return (length + kGroup - 1) / kGroup * kGroup; }

#if defined(__x86_64__) && defined(__GNUC__)
template <>
class PaddedRows<float> {
 public:
  explicit PaddedRows(const Windows& windows)
      : kernel_(windows.Kernel()[2]), stride_(windows.Stride()[2]), pad_(windows.Pad()[2]),
        size_(windows.Size()[2]), slots_(windows.Kernel()[1]),
        phase_(InGroups(InGroups(windows.LineLength()) + (kernel_ - 1) / stride_)),
        serves_(__builtin_cpu_supports("avx2") && windows.ChannelsBehind() == 1 &&
                windows.Size()[0] == 1 && windows.Kernel()[0] == 1 && windows.Volume() <= kMost),
        holds_(slots_, -1) {
    if (!serves_) return;
    padded_.assign(std::max<int64_t>(phase_ * stride_, size_ + pad_), Smallest<float>());
    rows_.resize(phase_ * stride_ * slots_);
    for (int k = 0; k < kernel_; ++k) element_.push_back(k % stride_ * phase_ + k / stride_);
  }

  void NextMap() { std::fill(holds_.begin(), holds_.end(), -1); }

  // `missing`: some window has nothing above the smallest number.
  __attribute__((target("avx2")))
  bool FindMaxima(const Windows& windows, const float* x, const Line& line, float* best,
                  int32_t* where, bool* missing) {
    if (!serves_) return false;
    const float* from[kMost];
    int32_t numbers[kMost];
    int count = 0;
    for (int h = line.begin[1]; h < line.end[1]; ++h) {
      const float* row = Row(x + line.base + int64_t{h} * size_, h);
      for (int k = 0; k < kernel_; ++k) {
        from[count] = row + element_[k];
        numbers[count++] = (h - line.start[1]) * kernel_ + k;
      }
    }
    *missing = Take(from, numbers, count, windows.LineLength(), best, where);
    return true;
  }

 private:
  static constexpr int kMost = 64;

  // Row h of the map: phase p has numbers p, p + stride, ... of the padded row.
  __attribute__((target("avx2")))
  const float* Row(const float* x, int h) {
    const int slot = h % slots_;
    float* const row = rows_.data() + slot * stride_ * phase_;
    if (holds_[slot] == h) return row;
    holds_[slot] = h;
    float* const padded = padded_.data();
    std::copy(x, x + size_, padded + pad_);
    if (stride_ == 2) {
      for (int64_t j = 0; j < phase_; j += kGroup) {
        const __m256 low = _mm256_loadu_ps(padded + 2 * j);
        const __m256 high = _mm256_loadu_ps(padded + 2 * j + kGroup);
        _mm256_storeu_ps(row + j, InOrder(_mm256_shuffle_ps(low, high, _MM_SHUFFLE(2, 0, 2, 0))));
        _mm256_storeu_ps(row + phase_ + j,
                         InOrder(_mm256_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 3, 1))));
      }
      return row;
    }
    for (int p = 0; p < stride_; ++p) {
      for (int64_t j = 0; j < phase_; ++j) row[p * phase_ + j] = padded[p + j * stride_];
    }
    return row;
  }

  __attribute__((target("avx2")))
  static __m256 InOrder(__m256 pairs) {  // a shuffle works on each half by itself
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(pairs),
                                                  _MM_SHUFFLE(3, 1, 2, 0)));
  }

  __attribute__((target("avx2")))
  static bool Take(const float* const* from, const int32_t* numbers, int count, int64_t length,
                   float* best, int32_t* where) {
    int missing = 0;
    for (int64_t i = 0; i < length; i += kGroup) {
      __m256 value = _mm256_set1_ps(Smallest<float>());
      __m256 number = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
      for (int t = 0; t < count; ++t) {
        const __m256 item = _mm256_loadu_ps(from[t] + i);
        const __m256 above = _mm256_cmp_ps(item, value, _CMP_GT_OQ);
        value = _mm256_blendv_ps(value, item, above);
        number = _mm256_blendv_ps(number, _mm256_castsi256_ps(_mm256_set1_epi32(numbers[t])),
                                  above);
      }
      _mm256_storeu_ps(best + i, value);
      _mm256_storeu_ps(reinterpret_cast<float*>(where + i), number);
      const int used = length - i < kGroup ? (1 << (length - i)) - 1 : 255;
      missing |= _mm256_movemask_ps(number) & used;  // the sign of -1
    }
    return missing != 0;
  }

  const int kernel_, stride_, pad_, size_, slots_;
  const int64_t phase_;
  const bool serves_;
  std::vector<int> holds_;        // which row each slot has
  std::vector<int64_t> element_;  // where element k of the first output's window lies
  std::vector<float> padded_, rows_;
};
#endif

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_PADDED_ROWS_H_
