// Max pooling that keeps the number of each maximum in its window. Data is (planes, d, h, w), or
// with the channels last (batch, d, h, w, channels); absent axes have size and window 1.
#include "real.cuh"

struct Shape {
  int size[3], window[3], stride[3], pad[3], output[3];
  Index channels;  // 1 unless the channels are last
};

#if REAL_BITS == 16
#define SMALLEST (-65504.0f)
#elif REAL_BITS == 64
#define SMALLEST (-1.7976931348623157e308)
#else
#define SMALLEST (-3.402823466e38f)
#endif

// Offset of the map that output i belongs to, and the output's position on each axis.
__device__ Index locate(const Shape& s, Index i, int* at) {
  const Index channel = i % s.channels;
  i /= s.channels;
  for (int axis = 2; axis >= 0; --axis) {
    at[axis] = (int)(i % s.output[axis]);
    i /= s.output[axis];
  }
  return i * s.size[0] * s.size[1] * s.size[2] * s.channels + channel;
}

// One thread an output. The first maximum in row-major order counts; -1 where all is NaN or -inf.
extern "C" __global__ void max_pool_forward(const Real* x, Real* y, int* number, Index count,
                                            int request, Shape s) {
  const Index i = thread_index();
  if (i >= count) return;
  int at[3];
  const Index base = locate(s, i, at);
  Value best = SMALLEST;
  int where = -1;
  for (int pass = 0; pass < 2 && where < 0; ++pass) {  // second: the smallest number itself
    for (int d = 0; d < s.window[0]; ++d) {
      for (int h = 0; h < s.window[1]; ++h) {
        for (int w = 0; w < s.window[2]; ++w) {
          const int z = at[0] * s.stride[0] - s.pad[0] + d;
          const int v = at[1] * s.stride[1] - s.pad[1] + h;
          const int u = at[2] * s.stride[2] - s.pad[2] + w;
          if (z < 0 || v < 0 || u < 0 || z >= s.size[0] || v >= s.size[1] || u >= s.size[2]) {
            continue;
          }
          const Value value =
              load(x + base + (((Index)z * s.size[1] + v) * s.size[2] + u) * s.channels);
          if (pass == 0 ? value > best : where < 0 && value == best) {
            best = value;
            where = (d * s.window[1] + h) * s.window[2] + w;
          }
        }
      }
    }
  }
  number[i] = where;
  put(y + i, request, best);
}

// Four bits a number: one thread a byte; rows start on a byte (the CPU's format).
extern "C" __global__ void pack_numbers(const int* number, Byte* packed, Index rows,
                                        Index row_size) {
  const Index bytes = (row_size + 1) / 2, i = thread_index();
  if (i >= rows * bytes) return;
  const Index row = i / bytes, first = i % bytes * 2;
  const int low = number[row * row_size + first] & 15;
  const int high = first + 1 < row_size ? number[row * row_size + first + 1] & 15 : 0;
  packed[i] = (Byte)(low | high << 4);
}

// One thread an input: it gathers from the windows that it lies in, in the order of the outputs,
// so sums are deterministic and equal those of the CPU.
extern "C" __global__ void max_pool_backward(const Real* dy, const Byte* packed, Real* dx,
                                             Index count, int request, Shape s, Index row_size) {
  const Index i = thread_index();
  if (i >= count) return;
  const Index channel = i % s.channels;
  Index rest = i / s.channels;
  int at[3];
  for (int axis = 2; axis >= 0; --axis) {
    at[axis] = (int)(rest % s.size[axis]);
    rest /= s.size[axis];
  }
  int first[3], last[3];
  for (int axis = 0; axis < 3; ++axis) {
    const int reach = at[axis] + s.pad[axis] - s.window[axis] + 1;
    first[axis] = reach <= 0 ? 0 : (reach + s.stride[axis] - 1) / s.stride[axis];
    last[axis] = min((at[axis] + s.pad[axis]) / s.stride[axis], s.output[axis] - 1);
  }
  Value sum = request == kAdd ? load(dx + i) : Value(0);
  for (int d = first[0]; d <= last[0]; ++d) {
    for (int h = first[1]; h <= last[1]; ++h) {
      for (int w = first[2]; w <= last[2]; ++w) {
        const int wanted = ((at[0] + s.pad[0] - d * s.stride[0]) * s.window[1] + at[1] + s.pad[1] -
                            h * s.stride[1]) * s.window[2] + at[2] + s.pad[2] - w * s.stride[2];
        const Index position =
            (((Index)d * s.output[1] + h) * s.output[2] + w) * s.channels + channel;
        const Byte pair = packed[rest * ((row_size + 1) / 2) + position / 2];
        if ((pair >> 4 * (position & 1) & 15) == wanted) {
          sum += load(dy + rest * row_size + position);
#if REAL_BITS == 16
          Real rounded;  // the CPU rounds each partial sum
          store(&rounded, sum);
          sum = load(&rounded);
#endif
        }
      }
    }
  }
  if (request != kNull) store(dx + i, sum);
}
