// ReLU, leaky ReLU and clip that keep one bit an element. A thread has eight elements and the byte
// of their bits: bit i % 8 of byte i / 8 belongs to element i, as on the CPU.
#include "real.cuh"

// Each changes a value and says whether the gradient passes.
struct Relu {  // NaN passes, as in MXNet
  __device__ __forceinline__ bool operator()(Value* value) const {
    const bool passes = !(*value <= Value(0));
    if (!passes) *value = Value(0);
    return passes;
  }
};

struct LeakyRelu {  // the negative side is a float32 product whatever the type, as in MXNet
  float slope;
  __device__ __forceinline__ bool operator()(Value* value) const {
    const bool passes = *value > Value(0);
    if (!passes) *value = Value((float)*value * slope);
    return passes;
  }
};

struct Clip {
  Value low, high;
  __device__ __forceinline__ bool operator()(Value* value) const {
    const bool above = *value > high, below = *value < low;
    if (above) *value = high;
    if (below) *value = low;
    return !above && !below;
  }
};

template <class Activation>
__device__ __forceinline__ void forward(const Real* x, Real* y, Byte* mask, Index count,
                                        int request, Activation activation) {
  const Index first = (Index)thread_index() * kElements;
  if (first >= count) return;
  const int inside = inside_of(first, count);
  Eight eight = load_eight(x + first, inside);
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < kElements; ++i) bits |= (unsigned)activation(&eight.value[i]) << i;
  mask[first / kElements] = (Byte)(bits & 255u >> (kElements - inside));
  put_values(y + first, inside, request, eight);
}

extern "C" __global__ void relu_forward(const Real* x, Real* y, Byte* mask, Index count,
                                        int request) {
  forward(x, y, mask, count, request, Relu());
}

extern "C" __global__ void leaky_relu_forward(const Real* x, Real* y, Byte* mask, Index count,
                                              int request, float slope) {
  forward(x, y, mask, count, request, LeakyRelu{slope});
}

extern "C" __global__ void clip_forward(const Real* x, Real* y, Byte* mask, Index count,
                                        int request, float low, float high) {
  forward(x, y, mask, count, request, Clip{Value(low), Value(high)});
}

// dx = dy * (bit ? 1 : slope); of ReLU the slope is 0.
extern "C" __global__ void leaky_relu_backward(const Real* dy, const Byte* mask, Real* dx,
                                               Index count, int request, float slope) {
  const Index first = (Index)thread_index() * kElements;
  if (first >= count) return;
  const int inside = inside_of(first, count);
  Eight eight = load_eight(dy + first, inside);
  const unsigned bits = mask[first / kElements];
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    eight.value[i] *= bits >> i & 1 ? Value(1) : Value(slope);
  }
  put_values(dx + first, inside, request, eight);
}

extern "C" __global__ void clip_backward(const Real* dy, const Byte* mask, Real* dx, Index count,
                                         int request) {
  const Index first = (Index)thread_index() * kElements;
  if (first >= count) return;
  const int inside = inside_of(first, count);
  Eight eight = load_eight(dy + first, inside);
  const unsigned bits = mask[first / kElements];
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    if (!(bits >> i & 1)) eight.value[i] = Value(0);
  }
  put_values(dx + first, inside, request, eight);
}
