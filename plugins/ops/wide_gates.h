/*
 * Gates with AVX2 or AVX-512: those of ReLU and leaky ReLU in float32, where a byte of the mask takes
 * three instructions or less, and the products of all backward and of dropout.
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

// y = gate(x) and the mask's bits for 8 * `bytes` elements; y may be x. Whether there was a NaN. For
// processors with AVX2.
bool WideStretch(const WideGate& gate, const float* x, int64_t bytes, float* y, uint8_t* mask);

// As GateEights of lanes.h; false: nothing was done, for the processor lacks AVX2.
bool WideScale(const float* from, const uint8_t* bits, int64_t length, float open, float closed,
               bool add, float* to);
bool WideScale(const double* from, const uint8_t* bits, int64_t length, double open,
               double closed, bool add, double* to);

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_WIDE_GATES_H_
