// Dropout that keeps one bit an element, behind a first byte that says whether anything was
// dropped. Numbers are those of MXNet's own GPU generator: cuRAND's Philox 4x32-10 (Salmon et al.,
// 2011), whose states MXNet seeds; each state serves a contiguous stretch of the mask.
#include "real.cuh"

// The layout of curandStatePhilox4_32_10_t.
struct State {
  unsigned counter[4], output[4], key[2], used;
  int flags[2];
  float spare_float;
  double spare_double;
};

__device__ void philox(State* s) {
  unsigned c[4], k0 = s->key[0], k1 = s->key[1];
  for (int i = 0; i < 4; ++i) c[i] = s->counter[i];
  for (int round = 0; round < 10; ++round) {
    const unsigned h0 = __umulhi(0xD2511F53u, c[0]), l0 = 0xD2511F53u * c[0];
    const unsigned h1 = __umulhi(0xCD9E8D57u, c[2]), l1 = 0xCD9E8D57u * c[2];
    c[0] = h1 ^ c[1] ^ k0;
    c[1] = l1;
    c[2] = h0 ^ c[3] ^ k1;
    c[3] = l0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int i = 0; i < 4; ++i) s->output[i] = c[i];
}

// The next 32 bits; every fourth call makes four of them from the next counter.
__device__ unsigned next_bits(State* s) {
  const unsigned result = s->output[s->used++ & 3];
  if (s->used == 4) {
    for (int i = 0; i < 4 && ++s->counter[i] == 0; ++i) {
    }
    philox(s);
    s->used = 0;
  }
  return result;
}

// In [0, 1): one minus cuRAND's number, as MXNet takes it, compiled with fused multiply-add.
__device__ float uniform(State* s) {
#if REAL_BITS == 64
  return (float)(1.0 - fma((double)next_bits(s), 2.3283064365386963e-10, 2.3283064365386963e-10));
#else
  return 1.0f - fmaf((float)next_bits(s), 2.3283064e-10f, 2.3283064e-10f / 2.0f);
#endif
}

extern "C" __global__ void dropout_clear(Byte* mask, Index bytes) {
  const Index i = thread_index();
  if (i < bytes) mask[i] = i == 0;
}

// One thread a state: elements [k * step, (k + 1) * step) of the mask. Bytes on the border belong
// to two threads, so bits are set atomically, in aligned words; dropout_clear comes first.
extern "C" __global__ void dropout_draw(Byte* mask, Index count, Index step, State* states,
                                        int threads, float keep) {
  const Index k = thread_index();
  if (k >= threads) return;
  State state = states[k];
  const Index begin = k * step, end = min(begin + step, count);
  Byte* const bits = mask + 1;
  unsigned word = 0;
  for (Index i = begin; i < end; ++i) {
    word |= (unsigned)(uniform(&state) <= keep) << (i & 7);
    if ((i & 7) == 7 || i + 1 == end) {
      const unsigned long long place = (unsigned long long)(bits + (i >> 3));
      atomicOr((unsigned*)(place & ~3ull), word << 8 * (place & 3));
      word = 0;
    }
  }
  states[k] = state;
}

// Forward and backward alike: to = from * (bit ? open : closed), or a copy.
extern "C" __global__ void dropout_apply(const Real* from, const Byte* mask, Real* to, Index count,
                                         int request, float open, float closed) {
  const Index i = thread_index();
  if (i >= count) return;
  Value value = load(from + i);
  if (mask[0]) value *= Value(mask[1 + (i >> 3)] >> (i & 7) & 1 ? open : closed);
  put(to + i, request, value);
}

// Nothing is dropped: inference, or p = 0.
extern "C" __global__ void dropout_pass(const Real* from, Byte* mask, Real* to, Index count,
                                        int request) {
  const Index i = thread_index();
  if (i == 0) mask[0] = 0;
  if (i < count) put(to + i, request, load(from + i));
}
