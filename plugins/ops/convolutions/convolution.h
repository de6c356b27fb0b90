/*
 * MXNet's Convolution on parts of a batch (delegate.h computes).
 *
 * A few samples at a time bound the memory of data that are made for the convolution alone, and the
 * workspace of implementations whose workspace grows with the batch. Native CPU results are bit for
 * bit those of the whole batch.
 */
#ifndef MEMONGER_OPS_CONVOLUTIONS_CONVOLUTION_H_
#define MEMONGER_OPS_CONVOLUTIONS_CONVOLUTION_H_

#include <functional>
#include <string>
#include <vector>

#include "ops/delegates/delegate.h"
#include "ops/frame/operator.h"
#include "ops/frame/params.h"

namespace memonger {
namespace ops {

// A convolution as our operators run it; copies share the attributes of MXNet's.
struct Convolver {
  Delegate forward, backward;
  int micro_batch = 0, micro_batch_mb = 0;
  bool has_bias = false;

  Convolver() = default;
  // `attributes`: those of Convolution and of ConvolutionSettings; others are left out.
  Convolver(const std::string& name, const Dictionary& attributes);

  // Samples at a time: `micro_batch`, or more where `micro_batch_mb` or the weight allow it, then
  // in parts of equal size.
  int64_t Step(const TShape& data, const TShape& weight, const TShape& output) const;

  // Makes samples begin to end - 1 of the data.
  template <class Array>
  using Maker = std::function<Array(int64_t begin, int64_t end)>;

  // data weight [bias] -> output.
  template <class Array>
  void Forward(const OpContext& context, const std::vector<Array>& in, OpReqType request,
               const Array& out, const Maker<Array>& make) const;
  // gradient data weight [bias] -> gradients of data, weight [and bias]. The data are there where
  // nothing makes them.
  template <class Array>
  void Backward(const OpContext& context, const std::vector<Array>& in, const Requests& request,
                const std::vector<Array>& out, const Maker<Array>& make = nullptr) const;
};

// The sum of the gradient over all but the channels, in the order in which MXNet's native code
// adds, which parts of the batch would not keep.
void BiasGradient(const TBlob& gradient, OpReqType request, const TBlob& out);

// An operator with inputs, names, shapes and storage of the Convolution that `stock` finds in its
// attributes.
Operator ConvolutionLike(const char* name, const Delegate& (*stock)(const NodeAttrs&));

// Attributes of Convolution, and with those of ConvolutionSettings, for documentation and generated
// functions.
std::vector<dmlc::ParamFieldInfo> StockFields();
std::vector<dmlc::ParamFieldInfo> ConvolutionFields();

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_CONVOLUTIONS_CONVOLUTION_H_
