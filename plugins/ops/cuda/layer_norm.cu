// LayerNorm that keeps its output. Data is (outer, channels, inner); a row is what is normalised:
// the channels of one outer and inner position.
#include "real.cuh"

struct Place {
  Index outer, channels, inner;
  __device__ Index rows() const { return outer * inner; }
  __device__ Index offset(Index row, Index c) const {
    return (row / inner * channels + c) * inner + row % inner;
  }
};

__device__ __forceinline__ bool is_near_zero(const Real* gamma, const Real* beta, Index c,
                                             const Spare& spare) {
  return spare.searched && near_zero(load(gamma + c), load(beta + c), spare);
}

// Where the x-hat of channel c, whose gamma is near zero, is kept; null where there is no room.
__device__ Real* spare_room(const Real* gamma, const Real* beta, Index c, const Place& place,
                            const Spare& spare) {
  Index position = 0;
  for (Index before = 0; before < c; ++before) {
    position += is_near_zero(gamma, beta, before, spare);
  }
  if (position < spare.channels) return spare.data + position * place.rows();
  *spare.error = spare.error_number;
  return 0;
}

// One block a row.
extern "C" __global__ void layer_norm_forward(const Real* x, const Real* gamma, const Real* beta,
                                              Real* y, Stat* invstd, Place place, double eps,
                                              Spare spare, int request) {
  const Index row = blockIdx.x;
  Sum mean = load(x + place.offset(row, 0)), variance = 0;
  for (int round = 0; round < (REAL_BITS == 64 ? 2 : 1); ++round) {  // from distances to a guess
    Sum sum = 0, square = 0;
    for (Index c = threadIdx.x; c < place.channels; c += blockDim.x) {
      const Sum distance = (Sum)load(x + place.offset(row, c)) - mean;
      sum += distance;
      square += distance * distance;
    }
    const Sum shift = block_sum(sum) / place.channels;
    variance = block_sum(square) / place.channels - shift * shift;
    mean += shift;
  }
  const Sum inverse = 1.0 / sqrt((variance < 0 ? 0 : variance) + eps);
  if (threadIdx.x == 0) invstd[row] = (Stat)inverse;
  for (Index c = threadIdx.x; c < place.channels; c += blockDim.x) {
    const Index i = place.offset(row, c);
    const Sum hat = ((Sum)load(x + i) - mean) * inverse;
    if (is_near_zero(gamma, beta, c, spare)) {
      Real* room = spare_room(gamma, beta, c, place, spare);
      if (room) store(room + row, (Value)hat);
    }
    put(y + i, request, (Value)(hat * load(gamma + c) + load(beta + c)));
  }
}

// x-hat of an element; `room` is what spare_room gave if `kept`.
__device__ __forceinline__ Sum rebuilt(const Real* y, Index i, Index row, Sum gamma, Sum beta,
                                       bool kept, const Real* room) {
  if (!kept) return ((Sum)load(y + i) - beta) * (1.0 / gamma);
  return room ? (Sum)load(room + row) : not_a_number();
}

// Before layer_norm_backward, which may write over dy. Blocks of 32 channels by 16 threads: each
// takes every sixteenth row, and the first of them adds up, in order.
extern "C" __global__ void layer_norm_parameters(const Real* dy, const Real* y, const Real* gamma,
                                                 const Real* beta, Real* dgamma, Real* dbeta,
                                                 Place place, Spare spare, int dgamma_request,
                                                 int dbeta_request) {
  const int lane = threadIdx.x & 31, share = threadIdx.x / 32, shares = blockDim.x / 32;
  const Index c = (Index)blockIdx.x * 32 + lane;
  const bool inside = c < place.channels;
  Sum of_gamma = 0, of_beta = 0;
  if (inside) {
    const bool kept = is_near_zero(gamma, beta, c, spare);
    const Real* room = kept ? spare_room(gamma, beta, c, place, spare) : 0;
    const Sum scale = load(gamma + c), shift = load(beta + c);
    for (Index row = share; row < place.rows(); row += shares) {
      const Index i = place.offset(row, c);
      const Sum gradient = load(dy + i);
      of_beta += gradient;
      of_gamma += gradient * rebuilt(y, i, row, scale, shift, kept, room);
    }
  }
  shared_sums[threadIdx.x] = of_gamma;
  __syncthreads();
  if (share == 0 && inside) {
    for (int other = 1; other < shares; ++other) of_gamma += shared_sums[32 * other + lane];
    put(dgamma + c, dgamma_request, (Value)of_gamma);
  }
  __syncthreads();
  shared_sums[threadIdx.x] = of_beta;
  __syncthreads();
  if (share == 0 && inside) {
    for (int other = 1; other < shares; ++other) of_beta += shared_sums[32 * other + lane];
    put(dbeta + c, dbeta_request, (Value)of_beta);
  }
}

// One block a row.
extern "C" __global__ void layer_norm_backward(const Real* dy, const Real* y, const Real* gamma,
                                               const Real* beta, const Stat* invstd, Real* dx,
                                               Place place, Spare spare, int request) {
  const Index row = blockIdx.x;
  Sum sum = 0, dot = 0, p = 0, q = 0;
  for (int pass = 0; pass < 2; ++pass) {
    for (Index c = threadIdx.x; c < place.channels; c += blockDim.x) {
      const Index i = place.offset(row, c);
      const bool kept = is_near_zero(gamma, beta, c, spare);
      const Real* room = kept ? spare_room(gamma, beta, c, place, spare) : 0;
      const Sum hat = rebuilt(y, i, row, load(gamma + c), load(beta + c), kept, room);
      const Sum gradient = (Sum)load(dy + i) * load(gamma + c);
      if (pass == 0) {
        sum += gradient;
        dot += gradient * hat;
      } else {
        put(dx + i, request, (Value)((gradient - p - hat * q) * invstd[row]));
      }
    }
    if (pass == 0) {
      p = block_sum(sum) / place.channels;
      q = block_sum(dot) / place.channels;
    }
  }
}
