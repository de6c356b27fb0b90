/*
 * A mask that is smaller than the data, spread over them: one bit for each element, in a row.
 *
 * Where an axis shares its mask elements, runs of data have equal bits, or rows of bits come again;
 * either may be as short as two. Words of up to 56 bits are made of several runs or rows at once
 * and joined in a register, so that short ones cost as little as long ones.
 */
#ifndef MEMONGER_OPS_MASK_BITS_H_
#define MEMONGER_OPS_MASK_BITS_H_

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "./lanes.h"

namespace memonger {
namespace ops {

constexpr int64_t kWordBits = 56;  // with up to seven bits that wait they fill eight bytes
constexpr int64_t kMostRuns = 7;   // in a word

inline uint64_t LowBits(int64_t count) { return (uint64_t{1} << count) - 1; }

// kWordBits bits from any position of `count`; what lies behind the last is anything.
inline uint64_t WordOfBits(const uint8_t* bits, int64_t position, int64_t count) {
  const int64_t byte = position >> 3, bytes = BytesOfBits(count);
  uint64_t word = 0;
  if (byte + 8 <= bytes) {
    std::memcpy(&word, bits + byte, 8);
  } else {
    for (int64_t i = bytes; i-- > byte;) word = word << 8 | bits[i];
  }
  return word >> (position & 7);
}

// Writes bits one behind the other, and zeros or bits to come up to eight bytes behind the first.
class BitWriter {
 public:
  explicit BitWriter(uint8_t* to) : to_(to) {}

  // The lowest `count` bits; those above them are 0, and there are at most kWordBits.
  void Append(uint64_t bits, int64_t count) {
    waiting_ |= bits << filled_;
    std::memcpy(to_, &waiting_, 8);
    filled_ += count;
    to_ += filled_ >> 3;
    waiting_ >>= filled_ & ~int64_t{7};
    filled_ &= 7;
  }

  // `count` times the same bit.
  void AppendRun(bool bit, int64_t count) {
    for (int64_t part; count > 0; count -= part) {
      part = std::min(count, kWordBits);
      Append(bit ? LowBits(part) : 0, part);
    }
  }

 private:
  uint8_t* to_;
  uint64_t waiting_ = 0;
  int64_t filled_ = 0;
};

// How the elements of a mask lie over the data. Axes that share a mask element or do not are merged
// with neighbours of the same kind. The last two kinds make a block: either rows of `length_` bits
// that come again, or bits that stand for `length_` elements each.
class MaskBits {
 public:
  MaskBits(const TShape& data, const TShape& mask) : mask_count_(mask.Size()) {
    int axis = data.ndim() - 1;
    const auto shared = [&](int a) { return mask[a] == 1 && data[a] != 1; };
    while (axis >= 0 && data[axis] == 1) --axis;
    repeats_bits_ = axis >= 0 && shared(axis);
    for (bool kind : {repeats_bits_, !repeats_bits_}) {
      int64_t size = 1;
      for (; axis >= 0 && (shared(axis) == kind || data[axis] == 1); --axis) size *= data[axis];
      (kind == repeats_bits_ ? length_ : rows_) = size;
    }
    int64_t stride = repeats_bits_ ? rows_ : length_;
    for (; axis >= 0; --axis) {
      const int64_t step = mask[axis] == 1 ? 0 : stride;
      stride *= mask[axis];
      if (data[axis] != 1) outer_.push_back({data[axis], step});
    }
    group_ = repeats_bits_ ? std::min<int64_t>(kMostRuns, kWordBits / length_) : 0;
    runs_[0] = 0;
    for (int64_t i = 0; i < group_; ++i) {
      const int64_t half = int64_t{1} << i;  // groups that bit i is not in; twice as many with it
      for (int64_t bits = 0; bits < half; ++bits) {
        runs_[half + bits] = runs_[bits] | LowBits(length_) << i * length_;
      }
    }
  }

  // Whether the mask's bits are in a row already.
  bool OneEach() const { return !repeats_bits_ && rows_ == 1 && outer_.empty(); }

  // The bits of elements begin to end - 1. Up to seven bytes behind them are written as well.
  void Spread(const uint8_t* mask, int64_t begin, int64_t end, uint8_t* to) const {
    const int64_t block = length_ * rows_;
    Place place(outer_, begin / block);
    BitWriter writer(to);
    for (int64_t from = begin % block, left = end - begin; left > 0; from = 0) {
      const int64_t stop = std::min(block, from + left);
      if (repeats_bits_) {
        Runs(mask, place.position, from, stop, &writer);
      } else {
        Rows(mask, place.position, from, stop, &writer);
      }
      left -= stop - from;
      place.Next();
    }
  }

 private:
  using Axes = std::vector<std::pair<int64_t, int64_t>>;  // size and mask stride, first one fastest

  // Where in the mask a block begins.
  struct Place {
    const Axes& axes;
    std::vector<int64_t> at;
    int64_t position = 0;

    Place(const Axes& all, int64_t block) : axes(all), at(all.size()) {
      for (size_t i = 0; i < axes.size(); ++i, block /= axes[i - 1].first) {
        at[i] = block % axes[i].first;
        position += at[i] * axes[i].second;
      }
    }
    void Next() {
      for (size_t i = 0; i < axes.size(); ++i) {
        position += axes[i].second;
        if (++at[i] < axes[i].first) return;
        position -= at[i] * axes[i].second;
        at[i] = 0;
      }
    }
  };

  // Each bit from `position` on stands for a run of elements.
  void Runs(const uint8_t* mask, int64_t position, int64_t from, int64_t stop,
            BitWriter* to) const {
    position += from / length_;
    if (const int64_t within = from % length_) {
      const int64_t count = std::min(length_ - within, stop - from);
      to->AppendRun(Bit(mask, position++), count);
      from += count;
    }
    for (int64_t whole = (stop - from) / length_; group_ > 0 && whole > 0;) {
      const int64_t count = std::min(whole, kWordBits);
      uint64_t word = WordOfBits(mask, position, mask_count_);
      for (int64_t left = count, some; left > 0; left -= some, word >>= some) {
        some = std::min(left, group_);
        to->Append(runs_[word & LowBits(some)], some * length_);
      }
      position += count;
      whole -= count;
      from += count * length_;
    }
    for (; from < stop; from += length_) {
      to->AppendRun(Bit(mask, position++), std::min(length_, stop - from));
    }
  }

  // The `length_` bits from `position` on come again.
  void Rows(const uint8_t* mask, int64_t position, int64_t from, int64_t stop,
            BitWriter* to) const {
    if (length_ <= kWordBits) {
      const uint64_t row = WordOfBits(mask, position, mask_count_) & LowBits(length_);
      if (const int64_t within = from % length_) {
        const int64_t count = std::min(length_ - within, stop - from);
        to->Append(row >> within & LowBits(count), count);
        from += count;
      }
      const int64_t width = kWordBits / length_ * length_;
      uint64_t word = row;
      for (int64_t i = length_; i < width; i += length_) word |= row << i;
      for (; stop - from >= width; from += width) to->Append(word, width);
      if (from < stop) to->Append(word & LowBits(stop - from), stop - from);
      return;
    }
    for (int64_t count; from < stop; from += count) {
      const int64_t within = from % length_;
      count = std::min({kWordBits, length_ - within, stop - from});
      to->Append(WordOfBits(mask, position + within, mask_count_) & LowBits(count), count);
    }
  }

  int64_t mask_count_;
  bool repeats_bits_ = false;
  int64_t length_ = 1, rows_ = 1;
  Axes outer_;
  int64_t group_;  // runs in a word; 0: a run is longer
  uint64_t runs_[1 << kMostRuns];  // the words of all groups of bits
};

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_MASK_BITS_H_
