// ReLU, leaky ReLU and clip that keep one bit an element. One thread an output; the 32 bits of a
// warp are gathered by a vote and written by its first lane as four bytes, so blocks must be
// multiples of 32 threads. Bit i % 8 of byte i / 8 belongs to element i, as on the CPU.
#include "real.cuh"

__device__ __forceinline__ void write_bits(Byte* mask, Index i, Index count, bool bit) {
  const unsigned bits = __ballot_sync(0xffffffffu, bit);
  if ((threadIdx.x & 31) == 0) {
    for (int byte = 0; byte < 4 && i + 8 * byte < count; ++byte) {
      mask[i / 8 + byte] = (Byte)(bits >> (8 * byte));
    }
  }
}

__device__ __forceinline__ bool read_bit(const Byte* mask, Index i) {
  return mask[i >> 3] >> (i & 7) & 1;
}

// NaN passes, as in MXNet.
extern "C" __global__ void relu_forward(const Real* x, Real* y, Byte* mask, Index count,
                                        int request) {
  const Index i = thread_index();
  const bool inside = i < count;
  const Value value = inside ? load(x + i) : Value(0);
  const bool passes = inside && !(value <= Value(0));
  write_bits(mask, i, count, passes);
  if (inside) put(y + i, request, passes ? value : Value(0));
}

// The negative side is a float32 product whatever the type, as in MXNet.
extern "C" __global__ void leaky_relu_forward(const Real* x, Real* y, Byte* mask, Index count,
                                              int request, float slope) {
  const Index i = thread_index();
  const bool inside = i < count;
  const Value value = inside ? load(x + i) : Value(0);
  const bool passes = inside && value > Value(0);
  write_bits(mask, i, count, passes);
  if (inside) put(y + i, request, passes ? value : Value((float)value * slope));
}

// dx = dy * (bit ? 1 : closed); closed is 0 for ReLU and the slope for leaky ReLU.
extern "C" __global__ void gate_backward(const Real* dy, const Byte* mask, Real* dx, Index count,
                                         int request, float closed) {
  const Index i = thread_index();
  if (i >= count) return;
  put(dx + i, request, load(dy + i) * (read_bit(mask, i) ? Value(1) : Value(closed)));
}

extern "C" __global__ void clip_forward(const Real* x, Real* y, Byte* mask, Index count,
                                        int request, float low, float high) {
  const Index i = thread_index();
  const bool inside = i < count;
  const Value value = inside ? load(x + i) : Value(0);
  const bool above = value > Value(high), below = value < Value(low);
  write_bits(mask, i, count, inside && !above && !below);
  if (inside) put(y + i, request, above ? Value(high) : below ? Value(low) : value);
}

extern "C" __global__ void clip_backward(const Real* dy, const Byte* mask, Real* dx, Index count,
                                         int request) {
  const Index i = thread_index();
  if (i < count) put(dx + i, request, read_bit(mask, i) ? load(dy + i) : Value(0));
}
