/*
 * The gates of ReLU and leaky ReLU in float32 with AVX2: a byte of the mask in three instructions.
 *
 * MKLDNN's operators, whose place ours take, are as wide. Without MXNet's headers.
 */
#ifndef MEMONGER_OPS_WIDE_GATES_H_
#define MEMONGER_OPS_WIDE_GATES_H_

#include <cstdint>

namespace memonger {
namespace ops {

struct WideGate {
  bool nan_passes;
  bool scales;  // the closed gate gives x * slope, else 0
  float slope;
};

// Whether this processor has what WideStretch needs.
bool HasWideGates();

// y = gate(x) and the mask's bits for 8 * `bytes` elements; y may be x. Whether there was a NaN.
bool WideStretch(const WideGate& gate, const float* x, int64_t bytes, float* y, uint8_t* mask);

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_WIDE_GATES_H_
