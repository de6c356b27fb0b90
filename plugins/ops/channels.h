/*
 * Data seen as (outer, channel, inner), and walks over a few channels side by side.
 *
 * MXNet sums a channel front to back in one accumulator. To give the same bits at a better speed,
 * several channels are summed at once, each still front to back.
 */
#ifndef MEMONGER_OPS_CHANNELS_H_
#define MEMONGER_OPS_CHANNELS_H_

#include <string>
#include <type_traits>

#include "./common.h"

namespace memonger {
namespace ops {

struct Channels {
  static constexpr int64_t kPiece = 256;
  int64_t outer = 1, count = 1, inner = 1;

  Channels(const TShape& shape, int axis) {
    if (axis < 0) axis += shape.ndim();
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    count = shape[axis];
    for (int i = axis + 1; i < shape.ndim(); ++i) inner *= shape[i];
  }
  int64_t Items() const { return outer * inner; }  // of one channel
  int64_t Size() const { return outer * count * inner; }

  // visit(offset, step, length): the elements of channel `first`, front to back, in short pieces.
  // Those of channel first + g lie g * inner further on. The step is a constant where it is one,
  // so that loops over it become SIMD.
  template <class Visit>
  void Pieces(int64_t first, Visit visit) const {
    if (inner == 1) {
      for (int64_t done = 0; done < outer; done += kPiece) {
        visit(done * count + first, count, std::min<int64_t>(+kPiece, outer - done));
      }
      return;
    }
    for (int64_t o = 0; o < outer; ++o) {
      const int64_t base = (o * count + first) * inner;
      for (int64_t done = 0; done < inner; done += kPiece) {
        visit(base + done, std::integral_constant<int64_t, 1>(), std::min<int64_t>(+kPiece, inner - done));
      }
    }
  }

  // visit(offset, step, done, length): elements begin to begin + length - 1 of channel c in runs
  // of one step; `done` of them came before.
  template <class Visit>
  void Runs(int64_t c, int64_t begin, int64_t length, Visit visit) const {
    if (inner == 1) {
      visit(begin * count + c, count, int64_t{0}, length);
      return;
    }
    for (int64_t done = 0; done < length;) {
      const int64_t o = (begin + done) / inner, i = (begin + done) % inner;
      const int64_t run = std::min(inner - i, length - done);
      visit((o * count + c) * inner + i, std::integral_constant<int64_t, 1>(), done, run);
      done += run;
    }
  }

  // Where these elements lie side by side: of the first one; else -1.
  int64_t OffsetOfRun(int64_t c, int64_t begin, int64_t length) const {
    const int64_t o = begin / inner, i = begin % inner;
    return length == 1 || (inner > 1 && i + length <= inner) ? (o * count + c) * inner + i : -1;
  }

  // work(std::integral_constant<int, G>, first) for all channels in groups of G = 4, then 1.
  template <class Work>
  void ForEachGroup(Work work) const {
    constexpr int kGroup = 4;
    const int64_t groups = count / kGroup, rest = count % kGroup;
#pragma omp parallel for if (Size() >= kParallelFrom)
    for (int64_t job = 0; job < groups + rest; ++job) {
      if (job < groups) {
        work(std::integral_constant<int, kGroup>(), job * kGroup);
      } else {
        work(std::integral_constant<int, 1>(), groups * kGroup + job - groups);
      }
    }
  }
};

// sum[g] += terms[g][0], then terms[g][1], ...: each sum in order, the channels side by side.
template <class A>
inline void SumInOrder(const A (&terms)[1][Channels::kPiece], int64_t length, A* sum) {
  A s = sum[0];
  for (int64_t i = 0; i < length; ++i) s += terms[0][i];
  sum[0] = s;
}

template <class A>
inline void SumInOrder(const A (&terms)[4][Channels::kPiece], int64_t length, A* sum) {
  A s0 = sum[0], s1 = sum[1], s2 = sum[2], s3 = sum[3];
  for (int64_t i = 0; i < length; ++i) {
    s0 += terms[0][i];
    s1 += terms[1][i];
    s2 += terms[2][i];
    s3 += terms[3][i];
  }
  sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3;
}

inline int ChannelAxis(const std::string& name, const TShape& shape, int axis) {
  const int result = axis < 0 ? axis + shape.ndim() : axis;
  CHECK(result >= 0 && result < shape.ndim())
      << "Error in operator " << name << ": Channel axis out of range: " << axis;
  return result;
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_CHANNELS_H_
