/*
 * Max pooling of maps of floats or doubles with AVX2, a whole map at a time, where windows are small
 * and close to each other or to the sides: ways.h tells which are.
 */
#ifndef MEMONGER_OPS_PADDED_MAPS_H_
#define MEMONGER_OPS_PADDED_MAPS_H_

#include <cstring>
#include <vector>

#include "./avx.h"
#include "./common.h"
#include "./numbers.h"
#include "./phases.h"
#include "./ways.h"
#include "./windows.h"

namespace memonger {
namespace ops {

// Numbers may be written behind those of a map.
constexpr int64_t kRoom = 32;

template <class T> class AvxMaps;
template <class T> using PaddedMaps = IfServed<AvxMaps, T>;

#if defined(__x86_64__) && defined(__GNUC__)
// A map, padded, in as many planes as the strides have phases: plane (p, q) has rows p, p + stride,
// ... and of them columns q, q + stride, ... So element (k, l) of all windows, one line of outputs
// behind the other, is one run of numbers; a line of it is longer than a line of outputs by as
// many columns as windows reach over. Short lines therefore cost no more than long ones. Large maps
// are worked on in bands of lines that stay in the cache, maps of three axes one slice of outputs
// after the other.
template <class T>
class AvxMaps {
  using L = Avx<T>;
  using V = typename L::V;

 public:
  explicit AvxMaps(const Windows& windows)
      : serves_(Serves(Way::kPadded, windows)),
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
    ahead_ = band_ * stride_[0] * size_[1];
    // What is written or read behind the end of a row goes there.
    plane_ = (band_ + (kernel_[0] - 1) / stride_[0]) * width_ + kVector;
    slice_ = plane_ * stride_[0] * stride_[1];
    planes_.assign(slice_ * depth_.kernel + width_ + kBlock, Smallest<T>());
    for (int q = 0; q < stride_[1]; ++q) {
      const int column = q + pad_[1];
      starts_[q] = column % stride_[1] * plane_ + column / stride_[1];
    }
    best_.resize(band_ * width_ + kBlock);
    where_.resize((band_ * width_ + kBlock) * sizeof(int32_t));
    for (int d = 0; d < depth_.kernel; ++d) {
      for (int k = 0; k < kernel_[0]; ++k) {
        const int64_t line = k / stride_[0] * width_, phase = d * stride_[0] + k % stride_[0];
        for (int l = 0; l < kernel_[1]; ++l) {
          places_.push_back((phase * stride_[1] + l % stride_[1]) * plane_ + line + l / stride_[1]);
        }
      }
    }
  }

  template <class N>
  MEMONGER_AVX2 bool Pool(const T* map, T* y, N* numbers) {
    if (!serves_) return false;
    const int64_t length = int64_t{output_[0]} * output_[1];
    for (int slice = 0; slice < depth_.output; ++slice) {
      const int64_t done = slice * length;
      PoolSlice(map, slice, y + done, numbers + done);
    }
    return true;
  }

 private:
  static constexpr int kVector = L::kWidth;
  static constexpr int64_t kBlock = 32;  // bytes that are copied at a time, at most
  static constexpr int64_t kBand = 16384 / sizeof(T);  // numbers of the planes, about

  struct Depth {
    int size, output, kernel, stride, pad;
  };

  // One slice of outputs.
  template <class N>
  MEMONGER_AVX2 void PoolSlice(const T* map, int slice, T* y, N* numbers) {
    const int64_t size = int64_t{size_[0]} * size_[1];
    for (int first = 0; first < output_[0]; first += band_) {
      const int lines = std::min<int64_t>(band_, output_[0] - first);
      for (int d = 0; d < depth_.kernel; ++d) {
        const int from = slice * depth_.stride - depth_.pad + d;
        const bool there = from >= 0 && from < depth_.size;
        Fill(there ? map + from * size : nullptr, first, lines, planes_.data() + d * slice_);
      }
      N* const where = reinterpret_cast<N*>(where_.data());
      FindMaxima(lines, where);
      const int64_t done = int64_t{first} * output_[1];
      Close(best_.data(), lines, lines * output_[1], y + done);
      Close(where, lines, lines * output_[1] + kRoom, numbers + done);
    }
  }

  // The planes of output lines `first` and those behind; without a map they are padding.
  MEMONGER_AVX2
  void Fill(const T* map, int first, int lines, T* row) {
    const int rows = (lines - 1) * stride_[0] + kernel_[0];
    int from = first * stride_[0] - pad_[0], phase = 0;
    for (int r = 0; r < rows; ++r, ++from) {
      T* const to = row + phase * stride_[1] * plane_;
      if (phase >= kernel_[0]) {
        // No window has this row.
      } else if (map == nullptr || from < 0 || from >= size_[0]) {
        for (int q = 0; q < stride_[1]; ++q) FillRow(to + q * plane_);
      } else {
        WithStride(stride_[1], [&](auto stride) {
          SplitRow<decltype(stride)::value>(map + int64_t{from} * size_[1], to);
        });
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
  void FillRow(T* to) const {
    const V smallest = L::All(Smallest<T>());
    for (int64_t i = 0; i < width_; i += kVector) L::Put(to + i, smallest);
  }

  // Every stride-th number of a row into every plane, behind the padding. Meanwhile the next band
  // comes from memory: processors do not foresee it while maxima are looked for.
  template <int kStride>
  MEMONGER_AVX2 void SplitRow(const T* x, T* to) const {
    constexpr int kNumbers = kStride * kVector;
    const Planes<T, kStride> planes(to, starts_);
    V v[kStride];
    int64_t i = 0;
    int left = used_[1];
    for (; left >= kNumbers; left -= kNumbers, x += kNumbers, i += kVector) {
      for (int k = 0; k < kStride; ++k) v[k] = L::Load(x + k * kVector);
      Prefetch(x + ahead_, kNumbers);
      planes.Put(v, i);
    }
    if (left == 0) return;
    for (int k = 0; k < kStride; ++k) v[k] = Load(x + k * kVector, left - k * kVector);
    planes.Put(v, i);
  }

  // As many as there are, then the smallest number.
  MEMONGER_AVX2
  static V Load(const T* x, int there) {
    return there >= kVector ? L::Load(x) : L::LoadSome(x, there, L::All(Smallest<T>()));
  }

  // best_ and `where` (-1: nothing above the smallest number) from the planes.
  template <class N>
  MEMONGER_AVX2 void FindMaxima(int lines, N* where) {
    const int64_t length = lines * width_;
    int64_t i = 0;
    for (; i + 2 * kVector < length; i += 4 * kVector) FindSome<4>(i, where + i);
    for (; i < length; i += kVector) FindSome<1>(i, where + i);
  }

  template <int kVectors, class N>
  MEMONGER_AVX2 void FindSome(int64_t i, N* where) {
    V value[kVectors], number[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      value[v] = L::All(Smallest<T>());
      number[v] = L::Number(-1);
    }
    const T* const planes = planes_.data() + i;
    const int count = static_cast<int>(places_.size());
    for (int t = 0; t < count; ++t) {
      const T* const x = planes + places_[t];
      const V its = L::Number(t);
      for (int v = 0; v < kVectors; ++v) {
        TakeAbove<T>(L::Load(x + v * kVector), its, &value[v], &number[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) L::Put(best_.data() + i + v * kVector, value[v]);
    PutNumbers<kVectors>(number, where);
  }

  // Lines of outputs behind each other. Whole blocks are copied: what they write into the next
  // line is written once more. Nothing is written from `end` on.
  template <class N>
  MEMONGER_AVX2 void Close(const N* from, int64_t lines, int64_t end, N* to) const {
    constexpr int64_t kBytes = sizeof(N) == 1 ? kBlock / 2 : kBlock, kItems = kBytes / sizeof(N);
    const int64_t length = output_[1];
    for (int64_t line = 0; line < lines; ++line) {
      const N* const source = from + line * width_;
      N* const target = to + line * length;
      if (line * length + (length + kItems - 1) / kItems * kItems > end) {
        CopyExactly(source, length, target);
        continue;
      }
      for (int64_t i = 0; i < length; i += kItems) std::memcpy(target + i, source + i, kBytes);
    }
  }

  MEMONGER_AVX2
  static void CopyExactly(const T* from, int64_t length, T* to) {
    for (; length > 0; length -= kVector, from += kVector, to += kVector) {
      L::PutSome(to, static_cast<int>(std::min(length, int64_t{kVector})), L::Load(from));
    }
  }
  template <class N>
  static void CopyExactly(const N* from, int64_t length, N* to) {
    std::copy(from, from + length, to);
  }

  const bool serves_;
  const Depth depth_;
  int kernel_[2], stride_[2], pad_[2], size_[2], output_[2];
  int used_[2];               // of the map: further ones belong to no window
  int64_t width_ = 0;         // of a row in a plane
  int64_t band_ = 0;          // lines of outputs
  int64_t ahead_ = 0;         // from a number to the one of the next band
  int64_t plane_ = 0;         // from one plane to the next
  int64_t slice_ = 0;         // from the planes of one slice to those of the next
  int64_t starts_[kMostPhases];  // where in a row of planes each phase of the numbers goes
  std::vector<int64_t> places_;  // of the elements of the first window
  std::vector<T> planes_, best_;
  std::vector<uint8_t> where_;
};
#endif

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_PADDED_MAPS_H_
