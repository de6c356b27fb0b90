// Dropout that keeps one bit an element. Random numbers are Philox 4x32-10 (Salmon et al., 2011)
// of a key and a counter: the same key and offset give the same mask, whatever the launch.
#include "real.cuh"

struct Four {
  unsigned v[4];
};

__device__ Four philox(unsigned long long key, unsigned long long low, unsigned long long high) {
  Four c = {{(unsigned)low, (unsigned)(low >> 32), (unsigned)high, (unsigned)(high >> 32)}};
  unsigned k0 = (unsigned)key, k1 = (unsigned)(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const unsigned h0 = __umulhi(0xD2511F53u, c.v[0]), l0 = 0xD2511F53u * c.v[0];
    const unsigned h1 = __umulhi(0xCD9E8D57u, c.v[2]), l1 = 0xCD9E8D57u * c.v[2];
    const Four next = {{h1 ^ c.v[1] ^ k0, l1, h0 ^ c.v[3] ^ k1, l0}};
    c = next;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// One thread a byte of the mask: eight elements, kept with probability keep.
extern "C" __global__ void dropout_mask(Byte* mask, Index count, float keep,
                                        unsigned long long key, unsigned long long offset) {
  const Index byte = thread_index();
  if (byte * 8 >= count) return;
  unsigned bits = 0;
  for (int half = 0; half < 2; ++half) {
    const Four random = philox(key, 2 * byte + half, offset);
    for (int i = 0; i < 4; ++i) {
      const float uniform = (random.v[i] >> 8) * (1.0f / 16777216.0f);  // in [0, 1)
      bits |= (unsigned)(uniform < keep) << (4 * half + i);
    }
  }
  mask[byte] = (Byte)bits;
}

// Forward and backward alike: to = from * (bit ? 1 / keep : 0).
extern "C" __global__ void dropout_apply(const Real* from, const Byte* mask, Real* to, Index count,
                                         int request, float keep) {
  const Index i = thread_index();
  if (i >= count) return;
  const bool bit = mask[i >> 3] >> (i & 7) & 1;
  put(to + i, request, load(from + i) * (bit ? Value(1.0f / keep) : Value(0)));
}
