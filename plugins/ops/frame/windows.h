/*
 * The windows of a pooling operator: output shapes by MXNet's conventions, and a walk over the
 * windows of a row of outputs, for one to three axes and both layouts.
 */
#ifndef MEMONGER_OPS_FRAME_WINDOWS_H_
#define MEMONGER_OPS_FRAME_WINDOWS_H_

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/frame/common.h"
#include "ops/frame/refuse.h"

namespace memonger {
namespace ops {

enum Convention { kValid, kFull, kSame };

struct Window {
  int64_t position;  // of its output in the row; with the channels last of the first channel's
  int start[3];      // first position on each axis; negative in the padding
  int begin[3];      // first position inside the map
  int end[3];        // one past the last position inside the map
};

// Windows with the same elements inside the map; the others lie in the padding.
struct AlikeWindows {
  Window first;
  // Of each window: where its output is in the row, and how far its elements lie behind those of
  // the first one. MXNet's arrays have less than 2^31 elements.
  std::vector<int32_t> positions, shifts;
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
  }

  TShape OutputShape() const {
    TShape shape = data_;
    const int axes = data_.ndim() - 2;
    for (int i = 0; i < axes; ++i) shape[i + (last_ ? 1 : 2)] = output_[3 - axes + i];
    return shape;
  }

  int64_t Volume() const { return int64_t{kernel_[0]} * kernel_[1] * kernel_[2]; }

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

  // visit(window) for the windows of a row, in the order of the outputs.
  template <class Visit>
  void ForEachWindow(Visit visit) const {
    Window window;
    window.position = 0;
    for (int d = 0; d < output_[0]; ++d) {
      Limit(&window, 0, d);
      for (int h = 0; h < output_[1]; ++h) {
        Limit(&window, 1, h);
        for (int w = 0; w < output_[2]; ++w) {
          Limit(&window, 2, w);
          visit(window);
          window.position += ChannelsBehind();
        }
      }
    }
  }

  // The windows of a row; with the channels last there is one for each channel.
  std::vector<AlikeWindows> Groups() const {
    std::map<std::array<int, 6>, AlikeWindows> groups;
    auto last = groups.end();  // neighbours are mostly alike
    ForEachWindow([&](const Window& window) {
      std::array<int, 6> inside;
      for (int axis = 0; axis < 3; ++axis) {
        inside[2 * axis] = window.begin[axis] - window.start[axis];
        inside[2 * axis + 1] = window.end[axis] - window.start[axis];
      }
      if (last == groups.end() || last->first != inside) {
        last = groups.emplace(inside, AlikeWindows()).first;
      }
      AlikeWindows& group = last->second;
      if (group.positions.empty()) group.first = window;
      const int64_t shift = Origin(window) - Origin(group.first);
      for (int64_t channel = 0; channel < ChannelsBehind(); ++channel) {
        group.positions.push_back(static_cast<int32_t>(window.position + channel));
        group.shifts.push_back(static_cast<int32_t>(shift + channel));
      }
    });
    std::vector<AlikeWindows> found;
    for (auto& group : groups) found.push_back(std::move(group.second));
    return found;
  }

  // visit(number in the window, place in the row's map) for the elements of a window that are
  // inside the map, row-major; with the channels last of the first channel.
  template <class Visit>
  void ForEachElement(const Window& window, Visit visit) const {
    for (int d = window.begin[0]; d < window.end[0]; ++d) {
      for (int h = window.begin[1]; h < window.end[1]; ++h) {
        const int number = ((d - window.start[0]) * kernel_[1] + h - window.start[1]) * kernel_[2];
        for (int w = window.begin[2]; w < window.end[2]; ++w) {
          visit(number + w - window.start[2], Place(d, h, w));
        }
      }
    }
  }

  // Where the first element of each output's window, which may be padding, lies in the row's map,
  // and how far each element of a window lies behind its first.
  std::vector<int64_t> Origins() const {
    std::vector<int64_t> origins;
    origins.reserve(RowSize());
    ForEachWindow([&](const Window& window) {
      for (int64_t channel = 0; channel < ChannelsBehind(); ++channel) {
        origins.push_back(Origin(window) + channel);
      }
    });
    return origins;
  }
  std::vector<int64_t> Offsets() const {
    std::vector<int64_t> offsets;
    offsets.reserve(Volume());
    for (int d = 0; d < kernel_[0]; ++d) {
      for (int h = 0; h < kernel_[1]; ++h) {
        for (int w = 0; w < kernel_[2]; ++w) {
          offsets.push_back(Place(d, h, w));
        }
      }
    }
    return offsets;
  }

 private:
  int64_t Origin(const Window& window) const {
    return Place(window.start[0], window.start[1], window.start[2]);
  }

  int64_t Place(int d, int h, int w) const {
    return ((int64_t{d} * size_[1] + h) * size_[2] + w) * ChannelsBehind();
  }

  void Limit(Window* window, int axis, int position) const {
    window->start[axis] = position * stride_[axis] - pad_[axis];
    window->begin[axis] = std::max(window->start[axis], 0);
    window->end[axis] = std::min(window->start[axis] + kernel_[axis], size_[axis]);
  }

  TShape data_;
  bool last_;
  int64_t batch_, channels_;
  int size_[3], kernel_[3], stride_[3], pad_[3], output_[3];
};

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_FRAME_WINDOWS_H_
