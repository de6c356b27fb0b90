/* One bit an element: bit i % 8 of byte i / 8 belongs to element i. */
#ifndef MEMONGER_OPS_ELEMENTWISE_BITS_H_
#define MEMONGER_OPS_ELEMENTWISE_BITS_H_

#include <cstring>

#include "ops/frame/common.h"
#include "ops/frame/vectors.h"

namespace memonger {
namespace ops {

// Elements that a thread works on at a time: whole bytes of bits.
constexpr int64_t kBitsChunk = 2048;

inline int64_t BytesOfBits(int64_t count) { return (count + 7) / 8; }

inline bool Bit(const uint8_t* bits, int64_t i) { return (bits[i >> 3] >> (i & 7)) & 1; }

// Packs flags, each 0 or 1.
inline void PackBits(const uint8_t* flags, int64_t count, uint8_t* bits) {
  const int64_t whole = count / 8;
  for (int64_t byte = 0; byte < whole; ++byte) {
    uint64_t eight;
    std::memcpy(&eight, flags + 8 * byte, 8);
    bits[byte] = static_cast<uint8_t>(eight * 0x0102040810204080u >> 56);  // little-endian
  }
  if (whole * 8 == count) return;
  unsigned last = 0;
  for (int64_t i = whole * 8; i < count; ++i) last |= static_cast<unsigned>(flags[i]) << (i & 7);
  bits[whole] = static_cast<uint8_t>(last);
}

// to[i] = of(from[i], bit i), or that is added, on all threads.
template <class T, class Of>
void ForEachBit(const T* from, const uint8_t* bits, int64_t count, OpReqType request, T* to,
                Of of) {
  if (request == mxnet::kNullOp) return;
  const bool add = request == mxnet::kAddTo;
  ForEach(count, kBitsChunk, count >= kParallelFrom, [=](int64_t begin) {
    const int64_t end = std::min(begin + kBitsChunk, count), whole = end / 8 * 8;
    Vectorised([=] {
      for (int64_t i = begin; i < whole; i += 8) {
        const int byte = bits[i / 8];
#pragma omp simd
        for (int k = 0; k < 8; ++k) {
          const T value = of(from[i + k], byte >> k & 1);
          to[i + k] = add ? T(to[i + k] + value) : value;
        }
      }
    });
    for (int64_t i = whole; i < end; ++i) Store(to + i, request, of(from[i], Bit(bits, i)));
  });
}

// to = from * (bit ? open : closed). A product, not a selection: where `from` is infinite or NaN
// the gradient where the bit is not set is NaN, as it is in MXNet.
template <class T>
void ScaleByBits(const T* from, const uint8_t* bits, int64_t count, T open, T closed,
                 OpReqType request, T* to) {
  ForEachBit(from, bits, count, request, to,
             [=](T value, int bit) { return T(value * (bit ? open : closed)); });
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_ELEMENTWISE_BITS_H_
