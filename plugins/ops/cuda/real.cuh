// The number type of a kernel: compiled with -DREAL_BITS=16, 32 or 64.
//
// Half precision goes through two PTX instructions, so no CUDA header is needed and NVRTC can
// compile on machines that have nothing but the driver and libnvrtc. Value is the type that an
// element is computed in, Stat that of parameters and statistics of channels, Sum that of sums.
#pragma once

#if REAL_BITS == 16
struct Real {
  unsigned short bits;
};
typedef float Value;
typedef float Stat;
#ifndef HOST_EMULATION  // tests run the kernels on a CPU with their own conversions
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
typedef Real Stat;
__device__ __forceinline__ Value load(const Real* p) { return *p; }
__device__ __forceinline__ void store(Real* p, Value value) { *p = value; }
__device__ __forceinline__ Value rounded(Value value) { return value; }
#endif

typedef double Sum;
typedef long long Index;
typedef unsigned char Byte;

// How a result is written; the numbers of MXNet's OpReqType.
enum Request { kNull = 0, kWrite = 1, kInplace = 2, kAdd = 3 };

// An addend is rounded first, as on the CPU.
__device__ __forceinline__ void put(Real* p, int request, Value value) {
  if (request == kAdd) value = load(p) + rounded(value);
  if (request != kNull) store(p, value);
}

__device__ __forceinline__ Index thread_index() {
  return (Index)blockIdx.x * blockDim.x + threadIdx.x;
}
