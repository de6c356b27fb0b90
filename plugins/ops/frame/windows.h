/*
 * The windows of a pooling operator: output shapes by MXNet's conventions, and a walk over lines
 * of outputs and the elements of their windows, for one to three axes and both layouts.
 *
 * A line is what can be worked on side by side: the outputs along the last axis, or with the
 * channels last all channels of one output.
 */
#ifndef MEMONGER_OPS_FRAME_WINDOWS_H_
#define MEMONGER_OPS_FRAME_WINDOWS_H_

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/frame/common.h"
#include "ops/frame/refuse.h"

namespace memonger {
namespace ops {

enum Convention { kValid, kFull, kSame };

struct Line {
  int64_t row_position;  // of its first output in the row
  int64_t output;        // of its first output in the whole output
  int64_t base;          // of the row's map in the data
  int start[3];          // first position of the window on each axis; negative in the padding
  int begin[3];          // first position inside the map
  int end[3];            // one past the last position inside the map
};

class Windows {
 public:
  Windows(const NodeAttrs& attrs, const TShape& data, const TShape& kernel, const TShape& stride,
          const TShape& pad, Convention convention, bool global, bool channels_last)
      : data_(data), last_(channels_last) {
    const int axes = data.ndim() - 2;
    if (axes < 1 || axes > 3) {
      Refuse(attrs, Words() << "input data should be 3D in (batch, channel, x) or 4D in (batch, "
                               "channel, y, x) or 5D in (batch, channel, d, y, x), not "
                            << data);
    }
    if (!global && kernel.ndim() != axes) {
      Refuse(attrs, Words() << "a window of " << kernel.ndim() << " axes needs data of "
                            << kernel.ndim() + 2 << " axes, not " << data);
    }
    if (stride.ndim() > 0 && !global && stride.ndim() != axes) {
      Refuse(attrs, Words() << "stride " << stride << " does not fit the window " << kernel);
    }
    if (pad.ndim() > 0 && !global && convention != kSame && pad.ndim() != axes) {
      Refuse(attrs, Words() << "pad " << pad << " does not fit the window " << kernel);
    }
    if (convention == kSame && axes != 1) {
      Refuse(attrs, "pooling_convention 'same' is for 1-D pooling only");
    }
    for (int i = 0; convention == kSame && i < pad.ndim(); ++i) {  // Pooling wants three zeros
      if (pad[i] != 0) Refuse(attrs, "pooling_convention 'same' disables the use of pad");
    }
    batch_ = data[0];
    channels_ = last_ ? data[axes + 1] : data[1];
    // Axes that are not there have one element and a window of one, in front.
    for (int axis = 0; axis < 3; ++axis) {
      const int source = axis - (3 - axes);
      size_[axis] = kernel_[axis] = stride_[axis] = output_[axis] = 1;
      pad_[axis] = 0;
      if (source < 0) continue;
      const int size = data[source + (last_ ? 1 : 2)];
      size_[axis] = size;
      if (global) {
        kernel_[axis] = size;
        continue;
      }
      const int64_t added = pad.ndim() > 0 ? pad[source] : 0, padded = size + 2 * added;
      if (padded < kernel[source]) {
        Refuse(attrs, Words() << "kernel size (" << kernel[source] << ") exceeds input (" << size
                              << " padded to " << padded << ")");
      }
      if (padded > std::numeric_limits<int>::max()) {
        Refuse(attrs, Words() << "pad " << pad << " is too large");
      }
      kernel_[axis] = static_cast<int>(kernel[source]);
      pad_[axis] = static_cast<int>(added);
      if (stride.ndim() > 0) {  // one step beyond the map is like any other
        stride_[axis] = static_cast<int>(std::min<int64_t>(stride[source], padded + 1));
      }
      const float step = static_cast<float>(stride_[axis]);
      output_[axis] = convention == kValid ? 1 + (padded - kernel_[axis]) / stride_[axis]
                      : convention == kFull
                          ? 1 + static_cast<int>(std::ceil((padded - kernel_[axis]) / step))
                          : static_cast<int>(std::ceil(padded / step));
    }
    if (!last_) {
      first_.reserve(kernel_[2]);
      last_inside_.reserve(kernel_[2]);
    }
    for (int k = 0; k < (last_ ? 0 : kernel_[2]); ++k) {
      const int stride = stride_[2], shift = k - pad_[2];  // output i is at i * stride + shift
      first_.push_back(shift >= 0 ? 0 : (-shift + stride - 1) / stride);
      last_inside_.push_back(
          std::min(output_[2], shift >= size_[2] ? 0 : (size_[2] - 1 - shift) / stride + 1));
    }
  }

  TShape OutputShape() const {
    TShape shape = data_;
    const int axes = data_.ndim() - 2;
    for (int i = 0; i < axes; ++i) shape[i + (last_ ? 1 : 2)] = output_[3 - axes + i];
    return shape;
  }

  int64_t Volume() const { return int64_t{kernel_[0]} * kernel_[1] * kernel_[2]; }

  // Whether one window is the whole map, whose numbers lie behind each other.
  bool IsWholeMap() const {
    bool whole = !last_ || channels_ == 1;
    for (int axis = 0; axis < 3; ++axis) {
      whole = whole && output_[axis] == 1 && pad_[axis] == 0 && kernel_[axis] == size_[axis];
    }
    return whole;
  }

  // Rows are independent of each other: a map of one channel, or with the channels last one image.
  int64_t Rows() const { return last_ ? batch_ : batch_ * channels_; }
  int64_t RowSize() const {
    return int64_t{output_[0]} * output_[1] * output_[2] * (last_ ? channels_ : 1);
  }

  // Sizes on three axes; absent axes, in front, have one element and a window of one.
  const int* Size() const { return size_; }
  const int* Kernel() const { return kernel_; }
  const int* Stride() const { return stride_; }
  const int* Pad() const { return pad_; }
  const int* Output() const { return output_; }
  int64_t ChannelsBehind() const { return last_ ? channels_ : 1; }

  int64_t LineLength() const { return last_ ? channels_ : output_[2]; }

  // visit(line) for each line of the row, in the order of the outputs.
  template <class Visit>
  void ForEachLine(int64_t row, Visit visit) const {
    Line line;
    line.base = row * size_[0] * size_[1] * size_[2] * (last_ ? channels_ : 1);
    line.row_position = 0;
    for (int d = 0; d < output_[0]; ++d) {
      Limit(&line, 0, d);
      for (int h = 0; h < output_[1]; ++h) {
        Limit(&line, 1, h);
        for (int w = 0; w < (last_ ? output_[2] : 1); ++w) {
          Limit(&line, 2, w);
          line.output = row * RowSize() + line.row_position;
          visit(line);
          line.row_position += LineLength();
        }
      }
    }
  }

  // visit(number in the window, offset in the data, step, first, last): outputs first to last - 1
  // of the line have this element of their window inside the map; that of output i lies at
  // offset + i * step.
  template <class Visit>
  void ForEachElement(const Line& line, Visit visit) const {
    for (int d = line.begin[0]; d < line.end[0]; ++d) {
      for (int h = line.begin[1]; h < line.end[1]; ++h) {
        const int number = ((d - line.start[0]) * kernel_[1] + h - line.start[1]) * kernel_[2];
        const int64_t offset = (int64_t{d} * size_[1] + h) * size_[2];
        if (last_) {
          for (int w = line.begin[2]; w < line.end[2]; ++w) {
            visit(number + w - line.start[2], line.base + (offset + w) * channels_, int64_t{1},
                  int64_t{0}, channels_);
          }
          continue;
        }
        const int64_t stride = stride_[2];
        for (int k = 0; k < kernel_[2]; ++k) {
          visit(number + k, line.base + offset + k - pad_[2], stride, first_[k], last_inside_[k]);
        }
      }
    }
  }

  // Offset of each element of a window from the window's first; add Origin() of the output.
  std::vector<int64_t> Offsets() const {
    std::vector<int64_t> offsets;
    offsets.reserve(Volume());
    for (int d = 0; d < kernel_[0]; ++d) {
      for (int h = 0; h < kernel_[1]; ++h) {
        for (int w = 0; w < kernel_[2]; ++w) {
          offsets.push_back(((int64_t{d} * size_[1] + h) * size_[2] + w) * (last_ ? channels_ : 1));
        }
      }
    }
    return offsets;
  }

  // Where the window of each output of a row begins, from the beginning of the row's map.
  std::vector<int64_t> Origins() const {
    std::vector<int64_t> origins;
    origins.reserve(RowSize());
    ForEachLine(0, [&](const Line& line) {
      for (int64_t i = 0; i < LineLength(); ++i) origins.push_back(Origin(line, i));
    });
    return origins;
  }

  // Where the window of output i of the line begins; the place itself may be padding.
  int64_t Origin(const Line& line, int64_t i) const {
    const int64_t start = (int64_t{line.start[0]} * size_[1] + line.start[1]) * size_[2];
    return last_ ? line.base + (start + line.start[2]) * channels_ + i
                 : line.base + start + i * stride_[2] - pad_[2];
  }

 private:
  void Limit(Line* line, int axis, int position) const {
    line->start[axis] = position * stride_[axis] - pad_[axis];
    line->begin[axis] = std::max(line->start[axis], 0);
    line->end[axis] = std::min(line->start[axis] + kernel_[axis], size_[axis]);
  }

  TShape data_;
  bool last_;
  int64_t batch_, channels_;
  int size_[3], kernel_[3], stride_[3], pad_[3], output_[3];
  // Outputs of a line that have element k of the last axis inside the map: first to last - 1.
  std::vector<int> first_, last_inside_;
};

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_FRAME_WINDOWS_H_
