/*
 * Dropout's random bits, from the engines that MXNet draws from. Without MXNet's headers.
 */
#ifndef MEMONGER_OPS_DRAW_BITS_H_
#define MEMONGER_OPS_DRAW_BITS_H_

#include <cstdint>
#include <random>

namespace memonger {
namespace ops {

struct Threshold {
  float keep;
  bool inclusive;  // a number that equals `keep` sets the bit
  bool doubles;    // float64 numbers are drawn, then rounded to float32
};

// Draws a number in [0, 1) for each of the elements begin to end - 1; bit i % 8 of bits[i / 8] says
// whether that of element i is below the threshold. The bits are 0 before; other threads may set
// those of other elements.
void DrawBits(const Threshold& threshold, int64_t begin, int64_t end, std::mt19937* engine,
              uint8_t* bits);

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_DRAW_BITS_H_
