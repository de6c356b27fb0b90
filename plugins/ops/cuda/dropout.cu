// Dropout that keeps one bit an element, behind a first byte that says whether anything was
// dropped. Numbers are those of MXNet's own GPU generator: cuRAND's Philox 4x32-10 (Salmon
// et al., 2011), whose states MXNet seeds; each state serves `step` neighbouring elements. The
// generator is a function of a counter, so every thread makes the numbers of its own elements.
#include "real.cuh"

// The layout of curandStatePhilox4_32_10_t.
struct State {
  unsigned counter[4], output[4], key[2], used;
  int flags[2];
  float spare_float;
  double spare_double;
};

// Numbers of a state from some place on.
struct Stream {
  unsigned counter[4], output[4], key[2], used;

  __device__ __forceinline__ Stream(const State& state, unsigned skipped) {
    for (int i = 0; i < 4; ++i) counter[i] = state.counter[i];
    for (int i = 0; i < 2; ++i) key[i] = state.key[i];
    used = state.used + skipped;
    move(used / 4);
    used &= 3;
  }

  // Skips blocks of four numbers and makes the one behind them.
  __device__ __forceinline__ void move(unsigned blocks) {
    counter[0] += blocks;
    bool carry = counter[0] < blocks;
    for (int i = 1; i < 4; ++i) {
      counter[i] += carry;
      carry = carry && counter[i] == 0;
    }
    unsigned c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    unsigned k0 = key[0], k1 = key[1];
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      const unsigned h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
      const unsigned h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
      c0 = h1 ^ c1 ^ k0;
      c1 = l1;
      c2 = h0 ^ c3 ^ k1;
      c3 = l0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    output[0] = c0;
    output[1] = c1;
    output[2] = c2;
    output[3] = c3;
  }

  __device__ __forceinline__ unsigned next() {
    if (used == 4) {
      move(1);
      used = 0;
    }
    const unsigned place = used++;  // no array in local memory
    return place & 2 ? (place & 1 ? output[3] : output[2]) : (place & 1 ? output[1] : output[0]);
  }
};

// In [0, 1): one minus cuRAND's number, as MXNet takes it, compiled with fused multiply-add.
__device__ __forceinline__ float uniform(unsigned bits) {
#if REAL_BITS == 64
  return (float)(1.0 - fma((double)bits, 2.3283064365386963e-10, 2.3283064365386963e-10));
#else
  return 1.0f - fmaf((float)bits, 2.3283064e-10f, 2.3283064e-10f / 2.0f);
#endif
}

// A block has eight states and all of their elements, which are whole bytes of the mask. Its first
// threads move the states on when all threads have read them.
extern "C" __global__ void dropout_forward(const Real* x, Real* y, Byte* mask, Index count,
                                           int request, State* states, int step, float keep,
                                           float kept_factor, float dropped_factor) {
  State* const own = states + (Index)blockIdx.x * kStatesOfBlock;
  const Index begin = (Index)blockIdx.x * kStatesOfBlock * step;
  const Index left = count - begin;
  const int elements =
      (int)(left < (Index)kStatesOfBlock * step ? left : (Index)kStatesOfBlock * step);
  if (thread_index() == 0) mask[0] = 1;
  for (int first = kElements * threadIdx.x; first < elements; first += kElements * blockDim.x) {
    const int inside = inside_of(first, elements);
    Eight eight = load_eight(x + begin + first, inside);
    int state = first / step, number = first - state * step;
    Stream stream(own[state], number);
    unsigned bits = 0;
#pragma unroll 1
    for (int i = 0; i < inside; ++i) {
      if (number == step) {
        stream = Stream(own[++state], 0);
        number = 0;
      }
      bits |= (unsigned)(uniform(stream.next()) <= keep) << i;
      ++number;
    }
    mask[1 + (begin + first) / kElements] = (Byte)bits;
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      eight.value[i] *= Value(bits >> i & 1 ? kept_factor : dropped_factor);
    put_values(y + begin + first, inside, request, eight);
  }
  __syncthreads();
  const int drawn = min(elements - (int)threadIdx.x * step, step);
  if (threadIdx.x >= kStatesOfBlock || drawn <= 0) return;
  const Stream stream(own[threadIdx.x], drawn);
  for (int i = 0; i < 4; ++i) own[threadIdx.x].counter[i] = stream.counter[i];
  for (int i = 0; i < 4; ++i) own[threadIdx.x].output[i] = stream.output[i];
  own[threadIdx.x].used = stream.used;
}

// dx = dy * (bit ? kept_factor : dropped_factor), or a copy.
extern "C" __global__ void dropout_backward(const Real* dy, const Byte* mask, Real* dx, Index count,
                                            int request, float kept_factor, float dropped_factor) {
  const Index first = (Index)thread_index() * kElements;
  if (first >= count) return;
  const int inside = inside_of(first, count);
  Eight eight = load_eight(dy + first, inside);
  if (mask[0]) {
    const unsigned bits = mask[1 + first / kElements];
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      eight.value[i] *= Value(bits >> i & 1 ? kept_factor : dropped_factor);
  }
  put_values(dx + first, inside, request, eight);
}

// Nothing is dropped: inference, or p = 0.
extern "C" __global__ void dropout_pass(const Real* x, Real* y, Byte* mask, Index count,
                                        int request) {
  const Index first = (Index)thread_index() * kElements;
  if (first == 0) mask[0] = 0;
  if (first >= count) return;
  const int inside = inside_of(first, count);
  put_values(y + first, inside, request, load_eight(x + first, inside));
}
