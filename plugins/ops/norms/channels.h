/*
 * Data seen as (outer, channel, inner), and walks over a few channels side by side.
 *
 * MXNet sums a channel front to back in one accumulator. To give the same bits at a better speed,
 * several channels are summed at once, each still front to back. Where the elements of a channel do
 * not lie side by side, short chunks of several channels are copied, each to a line of its own.
 */
#ifndef MEMONGER_OPS_NORMS_CHANNELS_H_
#define MEMONGER_OPS_NORMS_CHANNELS_H_

#include <string>

#include "ops/frame/common.h"
#include "ops/frame/refuse.h"

namespace memonger {
namespace ops {

struct Channels {
  static constexpr int kFew = 4, kMany = 16;  // channels of a group; many if inner is 1
  static constexpr int64_t kChunk = 256, kChunkOfMany = 64;
  static constexpr int64_t kWorthIt = 32;  // shorter runs are copied to longer lines
  int64_t outer = 1, count = 1, inner = 1;

  Channels(const TShape& shape, int axis) {
    if (axis < 0) axis += shape.ndim();
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    count = shape[axis];
    for (int i = axis + 1; i < shape.ndim(); ++i) inner *= shape[i];
  }
  int64_t Items() const { return outer * inner; }  // of one channel
  int64_t Size() const { return outer * count * inner; }

  int64_t LongestChunk() const {
    if (inner == 1) return kChunkOfMany;
    if (inner < kWorthIt) return kChunk / std::max<int64_t>(1, inner) * inner;  // whole runs
    return inner < kChunk ? inner : kChunk;
  }

  // Elements begin to begin + length - 1 of a channel: the first is `at` in the outer-th row.
  struct Chunk {
    int64_t begin, length, outer, at;
  };

  // work(chunk) for the Items() of a channel, front to back, in short chunks.
  template <class Work>
  void ForEachChunk(Work work) const {
    const int64_t items = Items(), longest = LongestChunk();
    for (Chunk chunk{0, 0, 0, 0}; chunk.begin < items; chunk.begin += chunk.length) {
      chunk.length = std::min(longest, items - chunk.begin);
      if (inner >= kWorthIt) chunk.length = std::min(chunk.length, inner - chunk.at);
      work(chunk);
      chunk.at += chunk.length;
      if (chunk.at < inner) continue;
      chunk.outer += chunk.at / inner;
      chunk.at %= inner;
    }
  }

  int64_t OffsetOf(int64_t c, const Chunk& chunk) const {
    return (chunk.outer * count + c) * inner + chunk.at;
  }

  // work(first, lanes) for all channels in groups.
  template <class Work>
  void ForEachGroup(Work work) const {
    const int64_t size = inner == 1 ? kMany : kFew;
    ForEach(count, size, Size() >= kParallelFrom,
            [&](int64_t first) { work(first, static_cast<int>(std::min(size, count - first))); });
  }
};

// The same elements of a few neighbouring channels.
struct Tile {
  const Channels& channels;
  const int64_t first;
  const int lanes;
  const Channels::Chunk chunk;
};

// The elements of a tile as numbers of type A, each channel's side by side: where they are if that
// can be, else in `room`.
template <class A>
class Lines {
 public:
  const A* operator[](int lane) const { return line_[lane]; }
  A* operator[](int lane) { return line_[lane]; }

  template <class T>
  void Read(const Tile& tile, const T* array) {
    if (Aim(tile, const_cast<T*>(array), mxnet::kWriteTo)) return;
    ForEach(tile, array, [](const T& from, A* to) { *to = static_cast<A>(from); });
  }

  // For numbers that go nowhere else.
  void Aim(const Tile& tile) { Aim(tile, static_cast<A*>(nullptr), mxnet::kNullOp); }

  // Whether what is written to the lines is in the array at once; else call Write.
  template <class T>
  bool Aim(const Tile& tile, T* array, OpReqType request) {
    const int64_t stride = tile.channels.LongestChunk() + 8;
    const int64_t offset = tile.channels.OffsetOf(tile.first, tile.chunk);
    const bool one_run = tile.chunk.at + tile.chunk.length <= tile.channels.inner;
    A* const there =
        request == mxnet::kWriteTo || request == mxnet::kWriteInplace ? Same(array) : nullptr;
    const bool direct = there && one_run;
    for (int lane = 0; lane < tile.lanes; ++lane) {
      line_[lane] = direct ? there + offset + lane * tile.channels.inner : buffer_ + lane * stride;
    }
    return direct;
  }

  template <class T>
  void Write(const Tile& tile, OpReqType request, T* array) const {
    if (request == mxnet::kAddTo) {
      ForEach(tile, array, [](T& to, const A* from) { to += static_cast<T>(*from); });
    } else if (request != mxnet::kNullOp) {
      ForEach(tile, array, [](T& to, const A* from) { to = static_cast<T>(*from); });
    }
  }

 private:
  static A* Same(A* array) { return array; }
  template <class T>
  static A* Same(T*) {
    return nullptr;
  }

  // use(element, its place in a line), neighbours in memory one after the other.
  template <class T, class Use>
  void ForEach(const Tile& tile, T* array, Use use) const {
    const Channels& channels = tile.channels;
    if (channels.inner == 1) {
      for (int64_t i = 0; i < tile.chunk.length; ++i) {
        T* const row = array + (tile.chunk.begin + i) * channels.count + tile.first;
        for (int lane = 0; lane < tile.lanes; ++lane) use(row[lane], line_[lane] + i);
      }
      return;
    }
    // A chunk is runs of this many elements that lie side by side: whole rows, or part of one.
    const int64_t length = std::min(channels.inner, tile.chunk.length);
    for (int lane = 0; lane < tile.lanes; ++lane) {
      T* run = array + channels.OffsetOf(tile.first + lane, tile.chunk);
      A* line = line_[lane];
      for (int64_t done = 0; done < tile.chunk.length; done += length) {
        for (int64_t i = 0; i < length; ++i) use(run[i], line + i);
        run += channels.count * channels.inner;
        line += length;
      }
    }
  }

  A* line_[Channels::kMany];
  A buffer_[Channels::kMany * (Channels::kChunkOfMany + 8)];
};

// sums[lane] += terms[lane][0], then terms[lane][1], ...: each sum in order, four side by side.
template <class A>
inline void SumInOrder(const Lines<A>& terms, int lanes, int64_t length, A* sums) {
  int lane = 0;
  for (; lane + 4 <= lanes; lane += 4) {
    const A *t0 = terms[lane], *t1 = terms[lane + 1], *t2 = terms[lane + 2], *t3 = terms[lane + 3];
    A s0 = sums[lane], s1 = sums[lane + 1], s2 = sums[lane + 2], s3 = sums[lane + 3];
    for (int64_t i = 0; i < length; ++i) {
      s0 += t0[i];
      s1 += t1[i];
      s2 += t2[i];
      s3 += t3[i];
    }
    sums[lane] = s0, sums[lane + 1] = s1, sums[lane + 2] = s2, sums[lane + 3] = s3;
  }
  for (; lane < lanes; ++lane) {
    A s = sums[lane];
    for (int64_t i = 0; i < length; ++i) s += terms[lane][i];
    sums[lane] = s;
  }
}

inline int ChannelAxis(const NodeAttrs& attrs, const TShape& shape, int axis) {
  const int result = axis < 0 ? axis + shape.ndim() : axis;
  if (result < 0 || result >= shape.ndim()) {
    Refuse(attrs, Words() << "Channel axis out of range: " << axis << " of data " << shape);
  }
  return result;
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_NORMS_CHANNELS_H_
