/*
 * Launching our kernels from operators that MXNet runs on a GPU.
 *
 * Launch() compiles the source for the operator's device where that was not done yet, and starts
 * the kernel on MXNet's stream. Arguments must have exactly the types of the kernel's parameters:
 * pointers, int, float, long long (int64_t), and structs of cuda/layout.cuh.
 */
#ifndef MEMONGER_OPS_GPU_LAUNCH_H_
#define MEMONGER_OPS_GPU_LAUNCH_H_

#include <algorithm>
#include <atomic>

#include "ops/frame/common.h"

namespace memonger {
namespace gpu {

#include "ops/cuda/layout.cuh"

using ops::OpContext;

constexpr int kMostDevices = 64;

// A static object for each kernel; it remembers its machine code by device and number type.
struct Kernel {
  const char* file;  // in cuda/
  const char* name;
  std::atomic<void*> code[kMostDevices][3];

  constexpr Kernel(const char* in, const char* called) : file(in), name(called), code{} {}
};

// Blocks for so many things where a thread has `of_thread` of them.
inline int64_t Blocks(int64_t things, int64_t of_thread) {
  const int64_t of_block = of_thread * kThreads;
  return (things + of_block - 1) / of_block;
}

void LaunchPointers(const OpContext& context, Kernel* kernel, int type, int64_t blocks,
                    void** arguments);

// `type` is MXNet's number of the data's dtype. No blocks: nothing is launched.
template <class... Arguments>
void Launch(const OpContext& context, Kernel* kernel, int type, int64_t blocks,
            Arguments... arguments) {
  void* pointers[] = {&arguments...};
  LaunchPointers(context, kernel, type, blocks, pointers);
}

// Of an element-wise kernel, whose last arguments are `count` and `more`.
template <class... More>
void LaunchElements(const OpContext& context, Kernel* kernel, int type, const ops::TBlob& from,
                    const ops::TBlob& second, const ops::TBlob& third, int64_t count,
                    More... more) {
  Launch(context, kernel, type, Blocks(count, kElements), from.dptr_, second.dptr_, third.dptr_,
         count, more...);
}

// Until all that was launched on the operator's stream is done.
void Wait(const OpContext& context);

// A scalar attribute as the CPU operator uses it: rounded to the dtype of the data.
inline float Rounded(int type, float value) {
  return type == mshadow::kFloat16 ? static_cast<float>(ops::half_t(value)) : value;
}

}  // namespace gpu
}  // namespace memonger

#endif  // MEMONGER_OPS_GPU_LAUNCH_H_
