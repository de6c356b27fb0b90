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

// ------------------------------------------------------------------ normalisation
extern __shared__ double shared_sums[];

// Sum over the block, whose threads are a power of two, in a fixed order: the same input gives the
// same bits.
__device__ __forceinline__ Sum block_sum(Sum value) {
  __syncthreads();
  shared_sums[threadIdx.x] = value;
  __syncthreads();
  for (int half = blockDim.x / 2; half; half /= 2) {
    if (threadIdx.x < half) shared_sums[threadIdx.x] += shared_sums[threadIdx.x + half];
    __syncthreads();
  }
  return shared_sums[0];
}

// Room for the x-hat of channels whose gamma is near zero, where the output does not tell it.
struct Spare {
  Real* data;
  int channels;     // how many have room
  int searched;     // 0: no channel needs room
  double smallest;  // share of |beta| below which |gamma| counts as near zero
  int* error;       // receives error_number where there is no room
  int error_number;
};

__device__ __forceinline__ bool near_zero(double gamma, double beta, const Spare& spare) {
  return !(fabs(gamma) >= spare.smallest * fabs(beta) && fabs(gamma) >= 1e-6);
}

__device__ __forceinline__ double not_a_number() {
  return __longlong_as_double(0x7ff8000000000000ll);
}
