// Max pooling that keeps the number of each maximum in its window (layout.cuh: Pool).
#include "real.cuh"

#if REAL_BITS == 16
#define SMALLEST (-65504.0f)
#elif REAL_BITS == 64
#define SMALLEST (-1.7976931348623157e308)
#else
#define SMALLEST (-3.402823466e38f)
#endif

// The maximum of the window of an output of a row, and its number: the first in row-major order, -1
// where nothing is above the smallest number.
__device__ __forceinline__ int find_maximum(const Real* map, int position, const Pool& s,
                                            Value* maximum) {
  int at[3];
  int rest = divide(position, s.channels);
  const int channel = position - rest * s.channels.by;
#pragma unroll
  for (int axis = 2; axis >= 0; --axis) {
    const int above = divide(rest, s.outputs[axis]);
    at[axis] = (rest - above * s.output[axis]) * s.stride[axis].by - s.pad[axis];
    rest = above;
  }
  Value best = SMALLEST;
  int where = -1;
  for (int pass = 0; pass < 2 && where < 0; ++pass) {  // second: the smallest number itself
    for (int d = max(0, -at[0]); d < min(s.window[0], s.size[0] - at[0]); ++d) {
      for (int h = max(0, -at[1]); h < min(s.window[1], s.size[1] - at[1]); ++h) {
        const int line = ((at[0] + d) * s.size[1] + at[1] + h) * s.size[2] + at[2];
        for (int w = max(0, -at[2]); w < min(s.window[2], s.size[2] - at[2]); ++w) {
          const Value value = load(map + (line + w) * s.channels.by + channel);
          if (pass == 0 ? value > best : where < 0 && value == best) {
            best = value;
            where = (d * s.window[1] + h) * s.window[2] + w;
          }
        }
      }
    }
  }
  *maximum = best;
  return where;
}

__device__ __forceinline__ int items_of(int row_size, const Pool& s) {
  return s.paired ? (row_size + 1) / 2 : row_size;
}

// A thread has some neighbouring outputs of a row. Rows of numbers start on a byte or word.
extern "C" __global__ void max_pool_forward(const Real* x, Real* y, Byte* kept, int rows,
                                            int row_size, int request, Pool s) {
  const int group = (int)thread_index(), row = divide(group, s.groups);
  if (row >= rows) return;
  const int first = (group - row * s.groups.by) * kOutputsOfThread;
  const Real* map = x + (Index)row * s.size[0] * s.size[1] * s.size[2] * s.channels.by;
  const int inside = min(kOutputsOfThread, row_size - first);
  Values<kOutputsOfThread> best;
  int number[kOutputsOfThread];
#pragma unroll
  for (int i = 0; i < kOutputsOfThread; ++i) {
    best.value[i] = Value(0);
    number[i] = i < inside ? find_maximum(map, first + i, s, &best.value[i]) : 0;
  }
  put_values(y + (Index)row * row_size + first, inside, request, best);
  const Index item = (Index)row * items_of(row_size, s) + (s.paired ? first / 2 : first);
#pragma unroll
  for (int i = 0; i < kOutputsOfThread; ++i) {
    if (i >= inside) break;
    if (s.paired && i % 2) continue;
    const Index place = item + (s.paired ? i / 2 : i);
    const int value = s.paired ? (number[i] & 15) | (number[i + 1] & 15) << 4 : number[i];
    if (s.words) {
      ((int*)kept)[place] = value;
    } else {
      kept[place] = (Byte)value;
    }
  }
}

// The outputs of an axis whose windows cover place `at` of the padded input: first to last, at most
// one where windows do not overlap.
struct Cover {
  int first, last;
};

__device__ __forceinline__ Cover cover(int at, int axis, const Pool& s) {
  const int reach = at - s.window[axis] + s.stride[axis].by;  // of the window before the first
  return {reach < s.stride[axis].by ? 0 : divide(reach, s.stride[axis]),
          min(divide(at, s.stride[axis]), s.output[axis] - 1)};
}

// A thread has some neighbouring inputs of a line (w and channels). Each gathers from the windows
// that cover it, in the order of the outputs: sums are the CPU's to the bit.
extern "C" __global__ void max_pool_backward(const Real* dy, const Byte* kept, Real* dx, int lines,
                                             int row_size, int request, Pool s) {
  const int segment = (int)thread_index(), line = divide(segment, s.segments);
  if (line >= lines) return;
  const int length = s.size[2] * s.channels.by;
  const int begin = (segment - line * s.segments.by) * kInputsOfThread;
  const int inside = min(kInputsOfThread, length - begin);
  const int plane = divide(line, s.sizes[1]), row = divide(plane, s.sizes[0]);
  const int at_h = line - plane * s.size[1] + s.pad[1], at_d = plane - row * s.size[0] + s.pad[0];
  const Cover over_h = cover(at_h, 1, s), over_d = cover(at_d, 0, s);
  const Real* gradient = dy + (Index)row * row_size;
  const Index items = (Index)row * items_of(row_size, s);
  Real* const to = dx + (Index)line * length + begin;
  Values<kInputsOfThread> sum = {};
  if (request == kAdd) sum = load_values<kInputsOfThread>(to, inside);
#pragma unroll
  for (int i = 0; i < kInputsOfThread; ++i) {
    if (i >= inside) break;
    const int w_of = divide(begin + i, s.channels), channel = begin + i - w_of * s.channels.by;
    const int at_w = w_of + s.pad[2];
    const Cover over_w = cover(at_w, 2, s);
    for (int d = over_d.first; d <= over_d.last; ++d) {
      for (int h = over_h.first; h <= over_h.last; ++h) {
        const int before =
            ((at_d - d * s.stride[0].by) * s.window[1] + at_h - h * s.stride[1].by) * s.window[2];
        for (int w = over_w.first; w <= over_w.last; ++w) {
          const int output = (d * s.output[1] + h) * s.output[2] + w;
          const int position = output * s.channels.by + channel;
          const Index item = items + (s.paired ? position / 2 : position);
          int number = s.words ? ((const int*)kept)[item] : kept[item];
          if (s.paired) number = number >> 4 * (position & 1) & 15;
          if (number == before + at_w - w * s.stride[2].by) {
            sum.value[i] = rounded(sum.value[i] + load(gradient + position));
          }
        }
      }
    }
  }
  put_values(to, inside, request == kNull ? kNull : kWrite, sum);
}
