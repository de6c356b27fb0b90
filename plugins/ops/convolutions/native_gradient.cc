#include "ops/convolutions/native_gradient.h"

#include <algorithm>

namespace memonger {
namespace ops {
namespace {

// A sample and the matrix that it is unrolled to: a row for each channel and place in the window,
// a column for each output. Absent axes, in front, have one element and a window of one.
class Unrolling {
 public:
  Unrolling(const ConvolutionWindow& window, const TShape& data, const TShape& output) {
    const int axes = data.ndim() - 2;
    channels_ = data[1];
    for (int axis = 0; axis < 3; ++axis) {
      const int source = axis - (3 - axes);
      const bool absent = source < 0;
      size_[axis] = absent ? 1 : data[source + 2];
      output_[axis] = absent ? 1 : output[source + 2];
      kernel_[axis] = absent ? 1 : window.kernel[source];
      stride_[axis] = absent || window.stride.ndim() <= 0 ? 1 : window.stride[source];
      dilate_[axis] = absent || window.dilate.ndim() <= 0 ? 1 : window.dilate[source];
      pad_[axis] = absent || window.pad.ndim() <= 0 ? 0 : window.pad[source];
    }
  }

  // Whether the sample is its own matrix.
  bool IsTrivial() const {
    for (int axis = 0; axis < 3; ++axis) {
      if (kernel_[axis] != 1 || stride_[axis] != 1 || pad_[axis] != 0) return false;
    }
    return true;
  }

  int64_t Rows() const { return channels_ * Volume(kernel_); }
  int64_t Columns() const { return Volume(output_); }

  template <class T>
  void Unroll(const T* sample, T* matrix) const {
    ForEachElement([=](int64_t in_matrix, int64_t in_sample) {
      matrix[in_matrix] = in_sample < 0 ? T(0) : sample[in_sample];
    });
  }

  // The sums of what came from each element of the sample, in MXNet's order.
  template <class T>
  void Fold(const T* matrix, OpReqType request, T* sample) const {
    if (request != mxnet::kAddTo) std::fill(sample, sample + channels_ * Volume(size_), T(0));
    ForEachElement([=](int64_t in_matrix, int64_t in_sample) {
      if (in_sample >= 0) sample[in_sample] += matrix[in_matrix];
    });
  }

 private:
  static int64_t Volume(const int* sizes) { return int64_t{sizes[0]} * sizes[1] * sizes[2]; }

  // visit(place in the matrix, place in the sample), below 0 for padding. Channels are worked on
  // side by side.
  template <class Visit>
  void ForEachElement(Visit visit) const {
    ForEach(channels_, 1, Rows() * Columns() >= kParallelFrom, [=](int64_t channel) {
      int64_t in_matrix = channel * Volume(kernel_) * Volume(output_);
      for (int place = 0; place < Volume(kernel_); ++place) {
        const int w = place % kernel_[2], plane = place / kernel_[2];
        const int h = plane % kernel_[1], d = plane / kernel_[1];
        for (int i = 0; i < output_[0]; ++i) {
          const int z = At(0, i, d);
          for (int j = 0; j < output_[1]; ++j) {
            const int y = At(1, j, h);
            const bool inside = z >= 0 && z < size_[0] && y >= 0 && y < size_[1];
            const int64_t line = ((channel * size_[0] + z) * size_[1] + y) * size_[2];
            for (int k = 0; k < output_[2]; ++k) {
              const int x = At(2, k, w);
              visit(in_matrix++, inside && x >= 0 && x < size_[2] ? line + x : -1);
            }
          }
        }
      }
    });
  }

  // Where an element of the window of an output is on an axis.
  int At(int axis, int output, int element) const {
    return output * stride_[axis] + element * dilate_[axis] - pad_[axis];
  }

  int64_t channels_;
  int size_[3], output_[3], kernel_[3], stride_[3], dilate_[3], pad_[3];
};

// `groups` matrices behind each other in the memory of an array.
TBlob Matrices(void* memory, const TBlob& like, int64_t groups, int64_t rows, int64_t columns) {
  TShape shape(3, groups);
  shape[1] = rows;
  shape[2] = columns;
  return TBlob(memory, shape, like.dev_mask(), like.type_flag_, like.dev_id());
}

TBlob Matrices(const TBlob& array, int64_t groups, int64_t rows) {
  return Matrices(array.dptr_, array, groups, rows,
                  array.Size() / std::max<int64_t>(1, groups * rows));
}

// Memory of one unrolled sample.
TBlob Unrolled(const OpContext& context, const Unrolling& unrolling, const TBlob& like,
               int64_t groups) {
  const int64_t bytes = unrolling.Rows() * unrolling.Columns() *
                        static_cast<int64_t>(mshadow::mshadow_sizeof(like.type_flag_));
  return Matrices(Scratch(context, bytes), like, groups, unrolling.Rows() / groups,
                  unrolling.Columns());
}

}  // namespace

#define MEMONGER_NATIVE_SWITCH(TYPE, T, ...)                                   \
  switch (TYPE) {                                                              \
    case mshadow::kFloat32: {                                                  \
      using T = float;                                                         \
      __VA_ARGS__                                                              \
    } break;                                                                   \
    case mshadow::kFloat64: {                                                  \
      using T = double;                                                        \
      __VA_ARGS__                                                              \
    } break;                                                                   \
    default:                                                                   \
      throw dmlc::Error("dtype " + std::string(TypeName(TYPE)) +               \
                        " is not supported on a CPU; use float32 or float64"); \
  }

NativeGradient::NativeGradient(const std::string& name, const Dictionary& attributes)
    : multiply_transposed_a_("_linalg_gemm2", name, {{"transpose_a", "True"}}),
      multiply_transposed_b_("_linalg_gemm2", name, {{"transpose_b", "True"}}),
      add_transposed_b_("_linalg_gemm", name, {{"transpose_b", "True"}}) {
  window_.InitAllowUnknown(attributes);
}

void NativeGradient::OfWeight(const OpContext& context, const TBlob& gradient, const TBlob& data,
                              OpReqType request, const TBlob& out) const {
  if (out.Size() == 0) return;
  const Unrolling unrolling(window_, data.shape_, gradient.shape_);
  const int64_t filters = gradient.shape_[1];
  const int64_t groups = data.shape_[1] / std::max<int64_t>(1, out.shape_[1]);
  const bool trivial = unrolling.IsTrivial();
  const TBlob result = Matrices(out, groups, filters / groups);
  TBlob matrix;
  if (!trivial) matrix = Unrolled(context, unrolling, data, groups);
  for (int64_t n = 0; n < data.shape_[0]; ++n) {
    const TBlob sample = Samples(data, n, n + 1);
    if (trivial) {
      matrix = Matrices(sample, groups, unrolling.Rows() / groups);
    } else {
      MEMONGER_NATIVE_SWITCH(data.type_flag_, T,
                             unrolling.Unroll(sample.dptr<T>(), matrix.dptr<T>());)
    }
    const TBlob one = Matrices(Samples(gradient, n, n + 1), groups, filters / groups);
    if (n == 0 && request != mxnet::kAddTo) {
      multiply_transposed_b_.Run(context, {one, matrix}, {mxnet::kWriteTo}, {result});
    } else {
      add_transposed_b_.Run(context, {one, matrix, result}, {mxnet::kWriteTo}, {result});
    }
  }
}

void NativeGradient::OfData(const OpContext& context, const TBlob& gradient, const TBlob& weight,
                            OpReqType request, const TBlob& out) const {
  if (out.Size() == 0) return;
  const Unrolling unrolling(window_, out.shape_, gradient.shape_);
  const int64_t filters = gradient.shape_[1];
  const int64_t groups = out.shape_[1] / std::max<int64_t>(1, weight.shape_[1]);
  const bool trivial = unrolling.IsTrivial();
  const TBlob filter = Matrices(weight, groups, filters / groups);
  TBlob matrix;
  if (!trivial) matrix = Unrolled(context, unrolling, out, groups);
  for (int64_t n = 0; n < out.shape_[0]; ++n) {
    const TBlob sample = Samples(out, n, n + 1);
    // Here MXNet writes, even where it should add.
    if (trivial) matrix = Matrices(sample, groups, unrolling.Rows() / groups);
    const TBlob one = Matrices(Samples(gradient, n, n + 1), groups, filters / groups);
    multiply_transposed_a_.Run(context, {filter, one}, {mxnet::kWriteTo}, {matrix});
    if (trivial) continue;
    MEMONGER_NATIVE_SWITCH(out.type_flag_, T,
                           unrolling.Fold(matrix.dptr<T>(), request, sample.dptr<T>());)
  }
}

}  // namespace ops
}  // namespace memonger
