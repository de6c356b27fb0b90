// BatchNorm that keeps its output (InPlace-ABN with identity, leaky ReLU or ELU behind) or its
// input (BatchNorm+ReLU). One block a channel, any number of threads that is a power of two; data
// is (outer, channels, inner). Sums are made in double in a fixed order: the same input gives the
// same bits. Parameters and statistics are float for half data, else of the data's type.
#include "real.cuh"

struct Place {
  Index outer, channels, inner;
  __device__ Index items() const { return outer * inner; }
  __device__ Index offset(Index k) const {
    return (k / inner * channels + blockIdx.x) * inner + k % inner;
  }
};

struct Norm {
  double eps, slope;
  float momentum;
  int fix_gamma;
  int batch;       // statistics are those of the batch
  int activation;  // 0 none, 1 leaky ReLU, 2 ELU, 3 ReLU
  int averages;    // 0 moved in backward, by the biased variance; 1 in forward, by the unbiased one
};

enum Activation { kIdentity = 0, kLeaky = 1, kElu = 2, kRelu = 3 };

// Where this channel's x-hat is kept, or null. `lost` where it needs room and there is none.
__device__ Real* spare_room(const Stat* gamma, const Stat* beta, const Place& place,
                            const Spare& spare, bool* lost) {
  *lost = false;
  if (!spare.searched || !near_zero(gamma[blockIdx.x], beta[blockIdx.x], spare)) return 0;
  Sum before = 0;
  for (Index c = threadIdx.x; c < blockIdx.x; c += blockDim.x) {
    before += near_zero(gamma[c], beta[c], spare);
  }
  const Index position = (Index)block_sum(before);
  if (position < spare.channels) return spare.data + position * place.items();
  if (threadIdx.x == 0) *spare.error = spare.error_number;
  *lost = true;
  return 0;
}

// Mean and variance of this channel, from distances to a first guess; double data is gone over
// again with the mean as the guess.
__device__ void batch_statistics(const Real* x, const Place& place, Sum* mean, Sum* variance) {
  Sum guess = load(x + place.offset(0));
  for (int round = 0; round < (REAL_BITS == 64 ? 2 : 1); ++round) {
    Sum sum = 0, square = 0;
    for (Index k = threadIdx.x; k < place.items(); k += blockDim.x) {
      const Sum distance = (Sum)load(x + place.offset(k)) - guess;
      sum += distance;
      square += distance * distance;
    }
    const Sum shift = block_sum(sum) / place.items();
    *variance = block_sum(square) / place.items() - shift * shift;
    guess += shift;
  }
  if (*variance < 0) *variance = 0;
  *mean = guess;
}

// For ReLU: the CPU's arithmetic to the bit, so that backward finds forward's signs.
__device__ __forceinline__ Stat normalised(Value x, Stat mean, Stat invstd, Stat gamma, Stat beta,
                                           int fix_gamma) {
  const Stat hat = (x - mean) * invstd;
  return fix_gamma ? hat + beta : hat * gamma + beta;
}

__device__ __forceinline__ Value relu_of(Stat z) { return rounded(z) <= 0 ? Value(0) : z; }

// Clones of the op have a momentum of 1: the averages stay as they are.
__device__ void move_averages(Stat* moving_mean, Stat* moving_var, const Norm& norm, Stat mean,
                              Sum variance) {
  if (norm.momentum == 1) return;
  const Stat share = Stat(1) - norm.momentum;
  *moving_mean = *moving_mean * norm.momentum + mean * share;
  *moving_var = (Stat)(*moving_var * norm.momentum + variance * share);
}

extern "C" __global__ void batch_norm_forward(const Real* x, Stat* gamma, const Stat* beta,
                                              Stat* moving_mean, Stat* moving_var, Real* y,
                                              Stat* mean, Stat* invstd, Place place, Norm norm,
                                              Spare spare, int request) {
  const Index c = blockIdx.x;
  bool lost;
  Real* kept = spare_room(gamma, beta, place, spare, &lost);
  Sum center, variance;
  if (norm.batch) {
    batch_statistics(x, place, &center, &variance);
  } else {
    center = moving_mean[c];
    variance = moving_var[c];
  }
  const Sum inverse = variance + norm.eps > 0 ? 1.0 / sqrt(variance + norm.eps) : 0.0;
  const Sum scale = inverse * (norm.fix_gamma ? Sum(1) : Sum(gamma[c])), shift = beta[c];
  const Stat m = (Stat)center, s = (Stat)inverse;
  if (threadIdx.x == 0) {
    mean[c] = m;
    invstd[c] = s;
    if (norm.fix_gamma) gamma[c] = 1;  // as MXNet does
    if (norm.batch && norm.averages == 1) {
      const Sum items = place.items();
      move_averages(moving_mean + c, moving_var + c, norm, m,
                    items > 1 ? variance * (items / (items - 1)) : variance);
    }
  }
  if (request == kNull && !kept) return;
  for (Index k = threadIdx.x; k < place.items(); k += blockDim.x) {
    const Index i = place.offset(k);
    const Value value = load(x + i);
    if (kept) store(kept + k, (Value)(((Sum)value - center) * inverse));
    if (norm.activation == kRelu) {
      put(y + i, request, relu_of(normalised(value, m, s, gamma[c], beta[c], norm.fix_gamma)));
      continue;
    }
    Sum z = ((Sum)value - center) * scale + shift;
    if (norm.activation == kLeaky && z < 0) z *= norm.slope;
    if (norm.activation == kElu && (Stat)z <= 0) z = norm.slope * expm1((Stat)z);
    put(y + i, request, (Value)z);
  }
}

// BatchNorm and ReLU from known statistics, of samples that may be few. One thread an element.
extern "C" __global__ void normalise_relu(const Real* x, const Stat* gamma, const Stat* beta,
                                          const Stat* mean, const Stat* invstd, Real* y,
                                          Index count, Place place, int fix_gamma) {
  const Index i = thread_index();
  if (i >= count) return;
  const Index c = i / place.inner % place.channels;
  store(y + i, relu_of(normalised(load(x + i), mean[c], invstd[c], gamma[c], beta[c], fix_gamma)));
}

// The gradient behind the activation, and x-hat, of element k of this channel. `kept` is the
// output, or for ReLU the input.
struct Rebuilt {
  Sum gradient, hat;
};

__device__ Rebuilt rebuild(const Real* dy, const Real* kept, const Real* spare, bool lost, Index k,
                           Index i, const Norm& norm, Stat gamma, Stat beta, Stat mean,
                           Stat invstd) {
  const Value value = load(kept + i);
  const Sum g = load(dy + i);
  Rebuilt r;
  if (norm.activation == kRelu) {
    const Value z = rounded(normalised(value, mean, invstd, gamma, beta, norm.fix_gamma));
    r.gradient = z > 0 ? g : g * (z == z ? Sum(0) : Sum(z));  // NaN stays, as in MXNet
    r.hat = ((Sum)value - mean) * invstd;
    return r;
  }
  Sum z = value;
  r.gradient = g;
  if (norm.activation == kLeaky && !(z > 0)) {
    r.gradient = g * norm.slope;
    z *= 1.0 / norm.slope;
  }
  if (norm.activation == kElu && !(z > 0)) {
    r.gradient = g * (z + norm.slope);
    z = fmax(log1p(z / norm.slope), -40.0);  // below, the output has lost what it was made from
  }
  if (spare) {
    r.hat = load(spare + k);
  } else {
    r.hat = lost ? z + not_a_number()
                 : (z - beta) * (1.0 / (norm.fix_gamma ? Sum(1) : Sum(gamma)));
  }
  return r;
}

__device__ void put_statistic(Stat* p, int request, Sum value) {
  if (request == kAdd) value = *p + (Stat)value;
  if (request != kNull) *p = (Stat)value;
}

extern "C" __global__ void batch_norm_backward(const Real* dy, const Real* kept, const Stat* gamma,
                                               const Stat* beta, const Stat* mean,
                                               const Stat* invstd, Stat* moving_mean,
                                               Stat* moving_var, Real* dx, Stat* dgamma,
                                               Stat* dbeta, Place place, Norm norm, Spare spare,
                                               int dx_request, int dgamma_request,
                                               int dbeta_request) {
  const Index c = blockIdx.x;
  bool lost;
  const Real* room = spare_room(gamma, beta, place, spare, &lost);
  const Stat m = mean[c], s = invstd[c], w = gamma[c], b = beta[c];
  Sum sum = 0, dot = 0;
  for (Index k = threadIdx.x; k < place.items(); k += blockDim.x) {
    const Rebuilt r = rebuild(dy, kept, room, lost, k, place.offset(k), norm, w, b, m, s);
    sum += r.gradient;
    dot += r.gradient * r.hat;
  }
  sum = block_sum(sum);
  dot = block_sum(dot);
  if (threadIdx.x == 0) {
    if (!norm.fix_gamma) {
      put_statistic(dgamma + c, dgamma_request, dot);
    } else if (dgamma_request != kAdd) {
      put_statistic(dgamma + c, dgamma_request, 0);
    }
    put_statistic(dbeta + c, dbeta_request, sum);
    if (norm.batch && norm.averages == 0) {
      move_averages(moving_mean + c, moving_var + c, norm, m,
                    s > 0 ? 1.0 / ((Sum)s * s) - norm.eps : 0.0);
    }
  }
  if (dx_request == kNull) return;
  const Sum p = norm.batch ? sum / place.items() : Sum(0);
  const Sum q = norm.batch ? dot / place.items() : Sum(0);
  const Sum scale = (norm.fix_gamma ? Sum(1) : Sum(w)) * s;
  for (Index k = threadIdx.x; k < place.items(); k += blockDim.x) {
    const Index i = place.offset(k);
    const Rebuilt r = rebuild(dy, kept, room, lost, k, i, norm, w, b, m, s);
    put(dx + i, dx_request, (Value)(scale * (r.gradient - p - r.hat * q)));
  }
}
