/*
 * Max pooling of maps of floats with AVX2, a whole map at a time.
 */
#ifndef MEMONGER_OPS_PADDED_MAPS_H_
#define MEMONGER_OPS_PADDED_MAPS_H_

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

#include <cstring>
#include <limits>
#include <vector>

#include "./common.h"
#include "./windows.h"

namespace memonger {
namespace ops {

template <class T> T Smallest() { return -std::numeric_limits<T>::max(); }
template <> inline half_t Smallest<half_t>() { return half_t::Binary(0xfbff); }

// A map, padded, in as many planes as the strides have phases: plane (p, q) has rows p, p + stride,
// ... and of them columns q, q + stride, ... So element (k, l) of all windows, one line of outputs
// behind the other, is one run of numbers; a line of it is longer than a line of outputs by as
// many columns as windows reach over. Short lines therefore cost no more than long ones. Large maps
// are worked on in bands of lines that stay in the cache, maps of three axes one slice of outputs
// after the other.
template <class T>
class PaddedMaps {
 public:
  explicit PaddedMaps(const Windows&) {}
  // The maxima of a map and the numbers of their elements in the windows. False: nothing of use
  // was done; these numbers or processors are not served, or nothing in some window is above the
  // smallest number.
  bool Pool(const T*, T*, uint8_t*) { return false; }
};

#if defined(__x86_64__) && defined(__GNUC__)
#define MEMONGER_AVX2 __attribute__((target("avx2")))

template <>
class PaddedMaps<float> {
 public:
  explicit PaddedMaps(const Windows& windows)
      : serves_(__builtin_cpu_supports("avx2") && windows.ChannelsBehind() == 1 &&
                windows.Volume() <= kMost),
        depth_{windows.Size()[0], windows.Output()[0], windows.Kernel()[0], windows.Stride()[0],
               windows.Pad()[0]} {
    for (int i = 0; i < 2; ++i) {
      kernel_[i] = windows.Kernel()[i + 1];
      stride_[i] = windows.Stride()[i + 1];
      pad_[i] = windows.Pad()[i + 1];
      size_[i] = windows.Size()[i + 1];
      output_[i] = windows.Output()[i + 1];
      used_[i] = std::max(0, std::min(size_[i], (output_[i] - 1) * stride_[i] + kernel_[i] -
                                                    pad_[i]));
    }
    if (!serves_) return;
    width_ = output_[1] + (kernel_[1] - 1) / stride_[1];
    band_ = std::max<int64_t>(4, kBand / (width_ * stride_[0] * stride_[1]));
    band_ = std::min<int64_t>(band_, output_[0]);
    // What is written or read behind the end of a row goes there.
    plane_ = (band_ + (kernel_[0] - 1) / stride_[0]) * width_ + kVector;
    even_ = pad_[1] % 2 * plane_ + pad_[1] / 2;
    odd_ = (pad_[1] + 1) % 2 * plane_ + (pad_[1] + 1) / 2;
    slice_ = plane_ * stride_[0] * stride_[1];
    planes_.assign(slice_ * depth_.kernel + width_ + kBlock, Smallest<float>());
    best_.resize(band_ * width_ + kBlock);
    where_.resize(band_ * width_ + kBlock);
    for (int d = 0; d < depth_.kernel; ++d) {
      for (int k = 0; k < kernel_[0]; ++k) {
        for (int l = 0; l < kernel_[1]; ++l) {
          element_.push_back(d * slice_ + (k % stride_[0] * stride_[1] + l % stride_[1]) * plane_ +
                             k / stride_[0] * width_ + l / stride_[1]);
        }
      }
    }
  }

  MEMONGER_AVX2
  bool Pool(const float* map, float* y, uint8_t* numbers) {
    if (!serves_) return false;
    const int64_t length = int64_t{output_[0]} * output_[1];
    for (int slice = 0; slice < depth_.output; ++slice) {
      const int64_t done = slice * length;
      PoolSlice(map, slice, y + done, numbers + done);
    }
    uint8_t all = 0;
    for (int64_t i = 0; i < depth_.output * length; ++i) all |= numbers[i];
    return all < 128;
  }

 private:
  static constexpr int64_t kVector = 8;  // floats
  static constexpr int64_t kBlock = 32;  // bytes that are copied at a time, at most
  static constexpr int64_t kBand = 4096;  // floats of the planes, about
  static constexpr int64_t kMost = 127;   // elements of a window: more are no signed byte

  struct Depth {
    int size, output, kernel, stride, pad;
  };

  // One slice of outputs.
  MEMONGER_AVX2
  void PoolSlice(const float* map, int slice, float* y, uint8_t* numbers) {
    const int64_t size = int64_t{size_[0]} * size_[1];
    for (int first = 0; first < output_[0]; first += band_) {
      const int lines = std::min<int64_t>(band_, output_[0] - first);
      for (int d = 0; d < depth_.kernel; ++d) {
        const int from = slice * depth_.stride - depth_.pad + d;
        const bool there = from >= 0 && from < depth_.size;
        Fill(there ? map + from * size : nullptr, first, lines, planes_.data() + d * slice_);
      }
      FindMaxima(lines * width_);
      const int64_t done = int64_t{first} * output_[1];
      Close(best_.data(), lines, y + done);
      Close(where_.data(), lines, numbers + done);
    }
  }

  // The planes of output lines `first` and those behind; without a map they are padding.
  MEMONGER_AVX2
  void Fill(const float* map, int first, int lines, float* row) {
    const int rows = (lines - 1) * stride_[0] + kernel_[0];
    int from = first * stride_[0] - pad_[0], phase = 0;
    for (int r = 0; r < rows; ++r, ++from) {
      float* const to = row + phase * stride_[1] * plane_;
      if (map == nullptr || from < 0 || from >= size_[0]) {
        for (int q = 0; q < stride_[1]; ++q) FillRow(to + q * plane_);
      } else if (stride_[1] == 2) {
        SplitRow(map + int64_t{from} * size_[1], to);
      } else {
        CopyRow(map + int64_t{from} * size_[1], to);
      }
      if (++phase == stride_[0]) {
        phase = 0;
        row += width_;
      }
    }
  }

  // Rows are written in order and by whole vectors: what reaches into the next row of a plane is
  // written once more. Behind the numbers of a map the planes hold the smallest from the start.
  MEMONGER_AVX2
  void FillRow(float* to) const {
    const __m256 smallest = _mm256_set1_ps(Smallest<float>());
    for (int64_t i = 0; i < width_; i += kVector) _mm256_storeu_ps(to + i, smallest);
  }

  // Every second number into every plane.
  MEMONGER_AVX2
  void SplitRow(const float* x, float* to) const {
    const __m256 smallest = _mm256_set1_ps(Smallest<float>());
    for (int i = 0; i < (pad_[1] + 1) / 2; i += kVector) {
      _mm256_storeu_ps(to + i, smallest);
      _mm256_storeu_ps(to + plane_ + i, smallest);
    }
    float *even = to + even_, *odd = to + odd_;
    int left = used_[1];
    for (; left >= 2 * kVector; left -= 2 * kVector, x += 2 * kVector) {
      Split(_mm256_loadu_ps(x), _mm256_loadu_ps(x + kVector), even, odd);
      even += kVector;
      odd += kVector;
    }
    if (left > 0) Split(Load(x, left), Load(x + kVector, left - kVector), even, odd);
  }

  MEMONGER_AVX2
  static void Split(__m256 low, __m256 high, float* even, float* odd) {
    _mm256_storeu_ps(even, InOrder(_mm256_shuffle_ps(low, high, _MM_SHUFFLE(2, 0, 2, 0))));
    _mm256_storeu_ps(odd, InOrder(_mm256_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 3, 1))));
  }

  MEMONGER_AVX2
  void CopyRow(const float* x, float* to) const {
    const __m256 smallest = _mm256_set1_ps(Smallest<float>());
    const int used = used_[1], pad = pad_[1], stride = stride_[1];
    if (stride == 1) {
      for (int i = 0; i < pad; i += kVector) _mm256_storeu_ps(to + i, smallest);
      for (int i = 0; i < used; i += kVector) _mm256_storeu_ps(to + pad + i, Load(x + i, used - i));
      return;
    }
    for (int q = 0; q < stride; ++q) {
      for (int64_t i = 0; i < width_; ++i) {
        const int64_t from = q + i * stride - pad;
        to[q * plane_ + i] = from >= 0 && from < used ? x[from] : Smallest<float>();
      }
    }
  }

  // As many as there are, then the smallest number.
  MEMONGER_AVX2
  static __m256 Load(const float* x, int there) {
    if (there >= kVector) return _mm256_loadu_ps(x);
    const __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(there), place);
    return _mm256_blendv_ps(_mm256_set1_ps(Smallest<float>()), _mm256_maskload_ps(x, mask),
                            _mm256_castsi256_ps(mask));
  }

  MEMONGER_AVX2
  static __m256 InOrder(__m256 pairs) {  // a shuffle works on each half by itself
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(pairs),
                                                  _MM_SHUFFLE(3, 1, 2, 0)));
  }

  // best_ and where_ (255: nothing above the smallest number) from the planes.
  MEMONGER_AVX2
  void FindMaxima(int64_t length) {
    int64_t i = 0;
    for (; i + 2 * kVector < length; i += 4 * kVector) FindSome<4>(i);
    for (; i < length; i += kVector) FindSome<1>(i);
  }

  template <int kVectors>
  MEMONGER_AVX2 void FindSome(int64_t i) {
    __m256 value[kVectors], number[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      value[v] = _mm256_set1_ps(Smallest<float>());
      number[v] = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    }
    const int count = static_cast<int>(element_.size());
    for (int t = 0; t < count; ++t) {
      const float* const from = planes_.data() + element_[t] + i;
      const __m256 here = _mm256_castsi256_ps(_mm256_set1_epi32(t));
      for (int v = 0; v < kVectors; ++v) {
        const __m256 item = _mm256_loadu_ps(from + v * kVector);
        const __m256 above = _mm256_cmp_ps(item, value[v], _CMP_GT_OQ);
        value[v] = _mm256_max_ps(item, value[v]);  // where item is NaN the value stays
        number[v] = _mm256_blendv_ps(number[v], here, above);
      }
    }
    for (int v = 0; v < kVectors; ++v) _mm256_storeu_ps(best_.data() + i + v * kVector, value[v]);
    const __m256i low = Narrow(number[0], number[1 % kVectors]);
    const __m256i high = Narrow(number[2 % kVectors], number[3 % kVectors]);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                                      _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    if (kVectors == 4) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(where_.data() + i), bytes);
    } else {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(where_.data() + i),
                       _mm256_castsi256_si128(bytes));
    }
  }

  MEMONGER_AVX2
  static __m256i Narrow(__m256 a, __m256 b) {
    return _mm256_packs_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b));
  }

  // Lines of outputs behind each other. Whole blocks are copied: what they write into the next
  // line is written once more.
  template <class V>
  MEMONGER_AVX2 void Close(const V* from, int64_t lines, V* to) const {
    constexpr int64_t kBytes = sizeof(V) == 1 ? kBlock / 2 : kBlock, kItems = kBytes / sizeof(V);
    const int64_t length = output_[1], end = lines * length;
    for (int64_t line = 0; line < lines; ++line) {
      const V* const source = from + line * width_;
      V* const target = to + line * length;
      if (line * length + (length + kItems - 1) / kItems * kItems > end) {
        std::copy(source, source + length, target);
        continue;
      }
      for (int64_t i = 0; i < length; i += kItems) std::memcpy(target + i, source + i, kBytes);
    }
  }

  const bool serves_;
  const Depth depth_;
  int kernel_[2], stride_[2], pad_[2], size_[2], output_[2];
  int used_[2];               // of the map: further ones belong to no window
  int64_t width_ = 0;         // of a row in a plane
  int64_t band_ = 0;          // lines of outputs
  int64_t plane_ = 0;         // from one plane to the next
  int64_t slice_ = 0;         // from the planes of one slice to those of the next
  int64_t even_ = 0, odd_ = 0;  // where a row's numbers go with a stride of 2
  std::vector<int64_t> element_;  // where each element of the first output's window lies
  std::vector<float> planes_, best_;
  std::vector<uint8_t> where_;
};
#undef MEMONGER_AVX2
#endif

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_PADDED_MAPS_H_
