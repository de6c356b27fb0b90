// Max pooling that keeps the number of each maximum in its window. Data is (planes, d, h, w), or
// with the channels last (batch, d, h, w, channels); absent axes have size and window 1. A row is
// what belongs to one plane or batch.
#include "real.cuh"

struct Shape {
  int size[3], window[3], stride[3], pad[3], output[3];
  Index channels;  // 1 unless the channels are last
};

// How numbers are kept: two in one item (four bits each), or one; an item is a byte or a word.
struct Format {
  int paired, words;
};

#if REAL_BITS == 16
#define SMALLEST (-65504.0f)
#elif REAL_BITS == 64
#define SMALLEST (-1.7976931348623157e308)
#else
#define SMALLEST (-3.402823466e38f)
#endif

__device__ int keep(int value, Format format) {  // -1 is all ones in every format
  return format.paired ? value & 15 : value;
}

// The maximum of the window of an output and its number: the first in row-major order, -1 where
// nothing is above the smallest number.
__device__ int find_maximum(const Real* map, Index position, const Shape& s, Value* maximum) {
  int at[3];
  const Index channel = position % s.channels;
  position /= s.channels;
  for (int axis = 2; axis >= 0; --axis) {
    at[axis] = (int)(position % s.output[axis]) * s.stride[axis] - s.pad[axis];
    position /= s.output[axis];
  }
  Value best = SMALLEST;
  int where = -1;
  for (int pass = 0; pass < 2 && where < 0; ++pass) {  // second: the smallest number itself
    for (int d = max(0, -at[0]); d < min(s.window[0], s.size[0] - at[0]); ++d) {
      for (int h = max(0, -at[1]); h < min(s.window[1], s.size[1] - at[1]); ++h) {
        for (int w = max(0, -at[2]); w < min(s.window[2], s.size[2] - at[2]); ++w) {
          const Index place = ((Index)(at[0] + d) * s.size[1] + at[1] + h) * s.size[2] + at[2] + w;
          const Value value = load(map + place * s.channels + channel);
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

// One thread an item. Rows of numbers start on an item.
extern "C" __global__ void max_pool_forward(const Real* x, Real* y, void* kept, Index rows,
                                            Index row_size, int request, Format format, Shape s) {
  const Index items = format.paired ? (row_size + 1) / 2 : row_size, i = thread_index();
  if (i >= rows * items) return;
  const Index row = i / items, first = i % items * (format.paired ? 2 : 1);
  const Real* map = x + row * s.size[0] * s.size[1] * s.size[2] * s.channels;
  Value best;
  int item = keep(find_maximum(map, first, s, &best), format);
  put(y + row * row_size + first, request, best);
  if (format.paired && first + 1 < row_size) {
    item |= keep(find_maximum(map, first + 1, s, &best), format) << 4;
    put(y + row * row_size + first + 1, request, best);
  }
  if (format.words) {
    ((int*)kept)[i] = item;
  } else {
    ((Byte*)kept)[i] = (Byte)item;
  }
}

// One thread an input: it gathers from the windows that it lies in, in the order of the outputs,
// so sums are deterministic and equal those of the CPU.
extern "C" __global__ void max_pool_backward(const Real* dy, const void* kept, Real* dx,
                                             Index count, Index row_size, int request,
                                             Format format, Shape s) {
  const Index i = thread_index();
  if (i >= count) return;
  const Index channel = i % s.channels;
  Index row = i / s.channels;
  int at[3], first[3], last[3];
  for (int axis = 2; axis >= 0; --axis) {
    at[axis] = (int)(row % s.size[axis]) + s.pad[axis];
    row /= s.size[axis];
    const int reach = at[axis] - s.window[axis] + 1;
    first[axis] = reach <= 0 ? 0 : (reach + s.stride[axis] - 1) / s.stride[axis];
    last[axis] = min(at[axis] / s.stride[axis], s.output[axis] - 1);
  }
  const Index items = format.paired ? (row_size + 1) / 2 : row_size;
  Value sum = request == kAdd ? load(dx + i) : Value(0);
  for (int d = first[0]; d <= last[0]; ++d) {
    for (int h = first[1]; h <= last[1]; ++h) {
      for (int w = first[2]; w <= last[2]; ++w) {
        const int wanted = ((at[0] - d * s.stride[0]) * s.window[1] + at[1] - h * s.stride[1]) *
                               s.window[2] + at[2] - w * s.stride[2];
        const Index position =
            (((Index)d * s.output[1] + h) * s.output[2] + w) * s.channels + channel;
        const Index place = row * items + (format.paired ? position / 2 : position);
        int number = format.words ? ((const int*)kept)[place] : ((const Byte*)kept)[place];
        if (format.paired) number = number >> 4 * (position & 1) & 15;
        if (number == wanted) sum = rounded(sum + load(dy + row * row_size + position));
      }
    }
  }
  if (request != kNull) store(dx + i, sum);
}
