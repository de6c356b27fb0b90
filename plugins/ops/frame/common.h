/* Shared by all operators: names for MXNet's types, dtypes, writing as requested. */
#ifndef MEMONGER_OPS_FRAME_COMMON_H_
#define MEMONGER_OPS_FRAME_COMMON_H_

#include <dmlc/parameter.h>
#include <mxnet/base.h>
#include <mxnet/op_attr_types.h>
#include <nnvm/node.h>
#include <nnvm/op.h>
#include <nnvm/op_attr_types.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// Runs the block with T = float, double or half_t.
#define MEMONGER_REAL_SWITCH(TYPE, OP_NAME, T, ...)                          \
  switch (TYPE) {                                                            \
    case mshadow::kFloat32: {                                                \
      using T = float;                                                       \
      __VA_ARGS__                                                            \
    } break;                                                                 \
    case mshadow::kFloat64: {                                                \
      using T = double;                                                      \
      __VA_ARGS__                                                            \
    } break;                                                                 \
    case mshadow::kFloat16: {                                                \
      using T = mshadow::half::half_t;                                       \
      __VA_ARGS__                                                            \
    } break;                                                                 \
    default:                                                                 \
      LOG(FATAL) << (OP_NAME) << ": dtype " << memonger::ops::TypeName(TYPE) \
                 << " is not supported; use float16, float32 or float64";    \
  }

// Defines NAME as the FCompute that runs FUNCTION<T> for the dtype T of an input.
#define MEMONGER_REAL_COMPUTE(NAME, FUNCTION, INPUT)                           \
  void NAME(const NodeAttrs& attrs, const OpContext& context, const Blobs& in, \
            const Requests& request, const Blobs& out) {                       \
    MEMONGER_REAL_SWITCH(in[INPUT].type_flag_, attrs.name, T,                  \
                         FUNCTION<T>(attrs, context, in, request, out);)       \
  }

namespace memonger {
namespace ops {

using mxnet::OpContext;
using mxnet::OpReqType;
using mxnet::ResourceRequest;
using mxnet::ShapeVector;
using mxnet::TBlob;
using mxnet::TShape;
using nnvm::NodeAttrs;
using nnvm::NodeEntry;
using nnvm::ObjectPtr;
using half_t = mshadow::half::half_t;

using TypeVector = std::vector<int>;
using Blobs = std::vector<TBlob>;
using Requests = std::vector<OpReqType>;
using Pairs = std::vector<std::pair<int, int>>;
using Names = std::vector<std::string>;

// Shorter loops run on one thread: starting a team costs about as much.
constexpr int64_t kParallelFrom = 16384;

// work(i) for 0, step, 2 * step and so on below `end`, on all threads if `parallel`. OpenMP's own
// `if` would start a team of one thread: 0.3 microseconds beside the four of a whole call.
template <class Work>
inline void ForEach(int64_t end, int64_t step, bool parallel, Work work) {
  if (!parallel) {
    for (int64_t i = 0; i < end; i += step) work(i);
    return;
  }
#pragma omp parallel for
  for (int64_t i = 0; i < end; i += step) work(i);
}

// Elements that ForEachChunk hands out at a time, at most.
constexpr int64_t kChunk = 2048;

// work(begin, length) for all chunks, on all threads.
template <class Work>
inline void ForEachChunk(int64_t count, Work work) {
  ForEach(count, kChunk, count >= kParallelFrom,
          [=](int64_t begin) { work(begin, std::min(kChunk, count - begin)); });
}

// The type sums are made in, as MXNet does: float for half_t, else the type itself.
template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<half_t> {
  using type = float;
};
template <class T>
using Acc = typename Accumulator<T>::type;

inline const char* TypeName(int type) {
  static const char* const kNames[] = {"float32", "float64", "float16", "uint8", "int32",
                                       "int8",    "int64",   "bool",    "int16", "uint16",
                                       "uint32",  "uint64",  "bfloat16"};
  return type >= 0 && type < 13 ? kNames[type] : "unknown";
}

inline bool IsReal(int type) {
  return type == mshadow::kFloat32 || type == mshadow::kFloat64 || type == mshadow::kFloat16;
}

// Writes or adds the value, as the request says: a loop invariant, which the compiler hoists.
template <class T, class V>
inline void Store(T* target, OpReqType request, V value) {
  if (request == mxnet::kAddTo) {
    *target += static_cast<T>(value);
  } else if (request != mxnet::kNullOp) {
    *target = static_cast<T>(value);
  }
}

inline TShape Flat(int64_t size) { return TShape(1, static_cast<nnvm::dim_t>(size)); }

// Scratch memory of the step (a CPU or a device pointer), asked for by TempSpace().
inline void* Scratch(const OpContext& context, int64_t bytes) {
  return context.requested[0].get_space_internal(std::max<int64_t>(bytes, 8));
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_FRAME_COMMON_H_
