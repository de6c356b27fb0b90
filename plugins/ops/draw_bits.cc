/*
 * An engine makes 624 numbers at once, in a loop of the C++ library that has a branch on a random
 * bit where the processor's vectors are too narrow. `flatten` compiles that loop for AVX2 as well.
 */
#include "./draw_bits.h"

#include <algorithm>

#include "./wide.h"

namespace memonger {
namespace ops {
namespace {

template <class T>
MEMONGER_INLINE void Draw(const Threshold& threshold, int64_t begin, int64_t end,
                          std::mt19937* engine, uint8_t* bits) {
  for (int64_t i = begin, stop; i < end; i = stop) {
    stop = std::min((i | 7) + 1, end);
    unsigned byte = 0;
    for (int64_t j = i; j < stop; ++j) {
      std::uniform_real_distribution<T> uniform;
      const float number = static_cast<float>(uniform(*engine));
      const bool set = threshold.inclusive ? number <= threshold.keep : number < threshold.keep;
      byte |= static_cast<unsigned>(set) << (j & 7);
    }
    if (stop - i == 8) {
      bits[i >> 3] = static_cast<uint8_t>(byte);
    } else {  // a neighbour owns the other bits
      __atomic_fetch_or(bits + (i >> 3), static_cast<uint8_t>(byte), __ATOMIC_RELAXED);
    }
  }
}

MEMONGER_INLINE void DrawBitsBody(const Threshold& threshold, int64_t begin, int64_t end,
                                  std::mt19937* engine, uint8_t* bits) {
  if (threshold.doubles) {
    Draw<double>(threshold, begin, end, engine, bits);
  } else {
    Draw<float>(threshold, begin, end, engine, bits);
  }
}

}  // namespace

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((flatten)) void DrawBitsWide(const Threshold&, int64_t, int64_t, std::mt19937*,
                                           uint8_t*);
#endif
MEMONGER_WITH_AVX2(DrawBits, (const Threshold& threshold, int64_t begin, int64_t end,
                              std::mt19937* engine, uint8_t* bits),
                   (threshold, begin, end, engine, bits))

}  // namespace ops
}  // namespace memonger
