/*
 * BatchNorm and ReLU in one, bit for bit as MXNet's two operators (batch_norm.h).
 *
 * Backward needs no mask: it has the input and the statistics, so the sign of the normalised value
 * is computed again.
 */
#ifndef MEMONGER_OPS_BATCH_NORM_RELU_H_
#define MEMONGER_OPS_BATCH_NORM_RELU_H_

#include <algorithm>

#include "./batch_norm.h"
#include "./lanes.h"

namespace memonger {
namespace ops {

template <class T>
struct NormRelu : BatchNorm<T> {
  using A = Acc<T>;
  using BatchNorm<T>::channels;
  using BatchNorm<T>::fix_gamma;

  NormRelu(const BatchNormParam& param, const TShape& shape)
      : BatchNorm<T>(shape, param.axis, param.eps, param.momentum, param.fix_gamma) {}

  // in: data gamma beta moving_mean moving_var ...; statistics[1], [2]: mean and invstd.
  void Prepare(bool batch, const Blobs& in, const Blobs& statistics) const {
    this->Statistics(batch, in[0].dptr<T>(), in[3].dptr<A>(), in[4].dptr<A>(),
                     statistics[1].dptr<A>(), statistics[2].dptr<A>());
    A* gamma = in[1].dptr<A>();
    if (fix_gamma) std::fill(gamma, gamma + channels.count, A(1));  // as MXNet does
  }

  // in: data gamma beta ...
  void Forward(const Blobs& in, const Blobs& statistics, OpReqType request,
               const TBlob& out) const {
    if (request == mxnet::kNullOp) return;
    T* y = out.dptr<T>();
    const bool add = request == mxnet::kAddTo;
    this->Normalise(in[0].dptr<T>(), statistics[1].dptr<A>(), statistics[2].dptr<A>(),
                    in[1].dptr<A>(), in[2].dptr<A>(), [y, add](int64_t i, T z) {
                      const T value = z <= T(0) ? T(0) : z;
                      y[i] = add ? T(y[i] + value) : value;
                    });
  }

  // in: (unused) data gamma beta mean invstd moving_mean moving_var; out: gradients of data, gamma
  // and beta. `gradient` may be the memory of out[0].
  void Backward(bool batch, const Blobs& in, const TBlob& gradient, const Requests& request,
                const Blobs& out) const {
    const T *g = gradient.dptr<T>(), *x = in[1].dptr<T>();
    const A *gamma = in[2].dptr<A>(), *beta = in[3].dptr<A>();
    const A *mean = in[4].dptr<A>(), *invstd = in[5].dptr<A>();
    if (batch) this->UpdateMoving(mean, invstd, in[6].dptr<A>(), in[7].dptr<A>());
    const BatchNorm<T>& norm = *this;
    // Captured by value: what is reached through references could be what the loop writes.
    const auto gradients = [=](int64_t c, int64_t offset, auto step, int64_t length,
                               T* __restrict to) {
      const A m = mean[c], v = invstd[c], w = gamma[c], b = beta[c];
      using L = Lanes<T>;
      T z[Channels::kPiece];
      bool known = true;
      for (int64_t i = 0; i < length; ++i) {
        z[i] = norm.Normalised(x[offset + i * step], m, v, w, b);
        to[i] = g[offset + i * step];
      }
      int64_t i = 0;
      const auto zero = L::All(T(0)), one = L::All(T(1));
      for (; i + L::kWidth <= length; i += L::kWidth) {  // a branch on a sign is mispredicted
        const auto open = L::Above(L::Load(z + i), zero);
        L::Put(to + i, L::Mul(L::Load(to + i), L::Pick(open, one, zero)));
      }
      for (; i < length; ++i) to[i] = to[i] * (z[i] > T(0) ? T(1) : T(0));
      for (i = 0; i < length; ++i) known &= z[i] == z[i];
      for (i = 0; i < length && !known; ++i) {  // MXNet multiplies with NaN where z is NaN
        if (z[i] != z[i]) to[i] = g[offset + i * step] * z[i];
      }
    };
    BatchNorm<T>::Backward(batch, x, mean, invstd, gamma, request, gradients, out[0].dptr<T>(),
                           out[1].dptr<A>(), out[2].dptr<A>());
  }
};

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_BATCH_NORM_RELU_H_
