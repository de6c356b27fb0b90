// BatchNorm that keeps its output (InPlace-ABN, identity or leaky behind it) or its input
// (BatchNorm+ReLU). One block a channel, any number of threads that is a power of two; data is
// (outer, channels, inner). Parameters and statistics are float for half data, else Real.
#include "real.cuh"

#if REAL_BITS == 64
typedef double Stat;
#else
typedef float Stat;
#endif

extern __shared__ char shared_bytes[];

// Sum over the block, in a fixed order: the same input gives the same bits.
__device__ Sum block_sum(Sum value) {
  Sum* part = (Sum*)shared_bytes;
  __syncthreads();
  part[threadIdx.x] = value;
  __syncthreads();
  for (int half = blockDim.x / 2; half; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  return part[0];
}

struct Place {
  Index outer, channels, inner;
  __device__ Index items() const { return outer * inner; }
  __device__ Index offset(Index k) const {
    return (k / inner * channels + blockIdx.x) * inner + k % inner;
  }
};

extern "C" __global__ void batch_statistics(const Real* x, Stat* mean, Stat* invstd, Place place,
                                            double eps) {
  Sum sum = 0, square = 0;
  for (Index k = threadIdx.x; k < place.items(); k += blockDim.x) sum += load(x + place.offset(k));
  const Sum center = block_sum(sum) / place.items();
  for (Index k = threadIdx.x; k < place.items(); k += blockDim.x) {
    const Sum distance = load(x + place.offset(k)) - center;
    square += distance * distance;
  }
  const Sum variance = block_sum(square) / place.items();
  if (threadIdx.x == 0) {
    mean[blockIdx.x] = (Stat)center;
    invstd[blockIdx.x] = variance + eps > 0 ? (Stat)(1.0 / sqrt((double)variance + eps)) : Stat(0);
  }
}

// y = act(x-hat * gamma + beta); the slope below zero is 1 (none), 0 (ReLU) or that of leaky ReLU.
extern "C" __global__ void normalise(const Real* x, const Stat* gamma, const Stat* beta,
                                     const Stat* mean, const Stat* invstd, Real* y, Place place,
                                     int request, int fix_gamma, float slope) {
  const int c = blockIdx.x;
  const Stat scale = invstd[c] * (fix_gamma ? Stat(1) : gamma[c]);
  for (Index k = threadIdx.x; k < place.items(); k += blockDim.x) {
    const Index i = place.offset(k);
    const Value z = (load(x + i) - mean[c]) * scale + beta[c];
    put(y + i, request, z > 0 ? z : z * Value(slope));
  }
}

// Gradients from the kept tensor: the output (from_output, slope above zero) or the input.
extern "C" __global__ void normalise_backward(const Real* dy, const Real* kept, const Stat* gamma,
                                              const Stat* beta, const Stat* mean,
                                              const Stat* invstd, Real* dx, Stat* dgamma,
                                              Stat* dbeta, Place place, int request, int fix_gamma,
                                              float slope, int from_output, int batch) {
  const int c = blockIdx.x;
  const Sum scale = fix_gamma ? Sum(1) : Sum(gamma[c]), shift = beta[c];
  Sum sum = 0, dot = 0, p = 0, q = 0;
  for (int pass = 0; pass < 2; ++pass) {
    for (Index k = threadIdx.x; k < place.items(); k += blockDim.x) {
      const Index i = place.offset(k);
      const Sum value = load(kept + i);
      Sum hat, z;
      if (from_output) {
        z = value > 0 ? value : value / slope;
        hat = (z - shift) / scale;
      } else {
        hat = (value - mean[c]) * invstd[c];
        z = hat * scale + shift;
      }
      const Sum dz = Sum(load(dy + i)) * (z > 0 ? Sum(1) : Sum(slope));
      if (pass == 0) {
        sum += dz;
        dot += dz * hat;
      } else {
        put(dx + i, request, Value(scale * invstd[c] * (dz - p - hat * q)));
      }
    }
    if (pass == 0) {
      sum = block_sum(sum);
      dot = block_sum(dot);
      p = batch ? sum / place.items() : Sum(0);
      q = batch ? dot / place.items() : Sum(0);
    }
  }
  if (threadIdx.x == 0) {
    dgamma[c] = fix_gamma ? Stat(0) : Stat(dot);
    dbeta[c] = Stat(sum);
  }
}
