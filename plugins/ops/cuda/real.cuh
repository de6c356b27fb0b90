// The number type of a kernel: compiled with -DREAL_BITS=16, 32 or 64.
//
// Half precision goes through two PTX instructions, so no CUDA header is needed and NVRTC can
// compile on machines that have nothing but the driver and libnvrtc. Sums are made in Sum.
#pragma once

#if REAL_BITS == 16
struct Real {
  unsigned short bits;
};
typedef float Value;
typedef float Sum;
__device__ __forceinline__ Value load(const Real* p) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(p->bits));
  return result;
}
__device__ __forceinline__ void store(Real* p, Value value) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(p->bits) : "f"(value));
}
#elif REAL_BITS == 64
typedef double Real;
typedef double Value;
typedef double Sum;
__device__ __forceinline__ Value load(const Real* p) { return *p; }
__device__ __forceinline__ void store(Real* p, Value value) { *p = value; }
#else
typedef float Real;
typedef float Value;
typedef double Sum;
__device__ __forceinline__ Value load(const Real* p) { return *p; }
__device__ __forceinline__ void store(Real* p, Value value) { *p = value; }
#endif

typedef long long Index;
typedef unsigned char Byte;

// How a result is written; the numbers of MXNet's OpReqType.
enum Request { kNull = 0, kWrite = 1, kInplace = 2, kAdd = 3 };

__device__ __forceinline__ void put(Real* p, int request, Value value) {
  if (request == kAdd) value = load(p) + value;
  if (request != kNull) store(p, value);
}

__device__ __forceinline__ Index thread_index() {
  return (Index)blockIdx.x * blockDim.x + threadIdx.x;
}
