// The number type of a kernel: compiled with -DREAL_BITS=16, 32 or 64. No CUDA header is needed, so
// NVRTC can compile where there is nothing but the driver and libnvrtc.
//
// Value is the type that an element is computed in. A thread of an element-wise kernel has eight
// neighbours, so memory is read and written in 16 bytes at a time where arrays are aligned.
#pragma once
#include "layout.cuh"

#if REAL_BITS == 16
struct Real {
  unsigned short bits;
};
typedef float Value;
#ifndef HOST_EMULATION  // which has its own conversions
__device__ __forceinline__ Value load(const Real* p) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(p->bits));
  return result;
}
__device__ __forceinline__ void store(Real* p, Value value) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(p->bits) : "f"(value));
}
#else
__device__ Value load(const Real* p) { return float_of_half(p->bits); }
__device__ void store(Real* p, Value value) { p->bits = half_of_float(value); }
#endif
__device__ __forceinline__ Value rounded(Value value) {
  Real real;
  store(&real, value);
  return load(&real);
}
#else
#if REAL_BITS == 64
typedef double Real;
#else
typedef float Real;
#endif
typedef Real Value;
__device__ __forceinline__ Value load(const Real* p) { return *p; }
__device__ __forceinline__ void store(Real* p, Value value) { *p = value; }
__device__ __forceinline__ Value rounded(Value value) { return value; }
#endif

typedef long long Index;
typedef unsigned char Byte;

// How a result is written; the numbers of MXNet's OpReqType.
enum Request { kNull = 0, kWrite = 1, kInplace = 2, kAdd = 3 };

__device__ __forceinline__ unsigned thread_index() { return blockIdx.x * blockDim.x + threadIdx.x; }

__device__ __forceinline__ int divide(int n, const Divider& d) {
  return d.by == 1 ? n : (int)(__umulhi((unsigned)n, d.factor) >> d.shift);
}

// ------------------------------------------------------------------ neighbouring elements
template <int kBytes>
struct alignas(kBytes) Words {
  unsigned word[kBytes / 4];
};

template <int kCount>
struct Values {
  Value value[kCount];
};

// Copies kSize bytes in chunks of 16, or in one. False where the address does not allow it.
template <int kSize>
__device__ __forceinline__ bool copy_aligned(void* to, const void* from, const void* outside) {
  typedef Words<(kSize < 16 ? kSize : 16)> Chunk;
  if ((unsigned long long)outside % sizeof(Chunk)) return false;
#pragma unroll
  for (int i = 0; i < kSize / (int)sizeof(Chunk); ++i) ((Chunk*)to)[i] = ((const Chunk*)from)[i];
  return true;
}

// `inside` of the elements are there; those behind read as 0.
template <int kCount>
__device__ __forceinline__ Values<kCount> load_values(const Real* p, int inside) {
  alignas(16) Real items[kCount];
  Values<kCount> result;
  const bool whole = inside >= kCount && copy_aligned<kCount*(int)sizeof(Real)>(items, p, p);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    result.value[i] = whole ? load(items + i) : i < inside ? load(p + i) : Value(0);
  }
  return result;
}

// An addend is rounded first, as on the CPU.
template <int kCount>
__device__ __forceinline__ void put_values(Real* p, int inside, int request,
                                           Values<kCount> result) {
  if (request == kNull) return;
  if (request == kAdd) {
    const Values<kCount> before = load_values<kCount>(p, inside);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      result.value[i] = before.value[i] + rounded(result.value[i]);
    }
  }
  alignas(16) Real items[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) store(items + i, result.value[i]);
  if (inside >= kCount && copy_aligned<kCount*(int)sizeof(Real)>(p, items, p)) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i < inside) p[i] = items[i];
  }
}

typedef Values<kElements> Eight;

__device__ __forceinline__ Eight load_eight(const Real* p, int inside) {
  return load_values<kElements>(p, inside);
}

// How many of `count` elements are left from `first` on, at most eight.
__device__ __forceinline__ int inside_of(Index first, Index count) {
  return count - first < kElements ? (int)(count - first) : kElements;
}
