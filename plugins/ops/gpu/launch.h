/*
 * Launching our kernels from operators that MXNet runs on a GPU.
 *
 * Launch() compiles the source for the operator's device where that was not done yet, and starts
 * the kernel on MXNet's stream. Arguments must have exactly the types of the kernel's parameters:
 * pointers, int, float, double, long long (int64_t), and structs of them.
 */
#ifndef MEMONGER_OPS_GPU_LAUNCH_H_
#define MEMONGER_OPS_GPU_LAUNCH_H_

#include <algorithm>
#include <string>

#include "ops/frame/common.h"

namespace memonger {
namespace gpu {

using ops::OpContext;

struct Kernel {
  const char* file;  // in cuda/
  const char* name;
};

struct Grid {
  int64_t blocks;
  int threads;
  int shared_bytes;
};

constexpr int kThreads = 256;

// One thread for each of `count` things.
inline Grid Threads(int64_t count) {
  return Grid{(count + kThreads - 1) / kThreads, kThreads, 0};
}

void LaunchPointers(const OpContext& context, const Kernel& kernel, int type, const Grid& grid,
                    void** arguments);

// `type` is MXNet's number of the data's dtype. An empty grid launches nothing.
template <class... Arguments>
void Launch(const OpContext& context, const Kernel& kernel, int type, const Grid& grid,
            Arguments... arguments) {
  void* pointers[] = {&arguments...};
  LaunchPointers(context, kernel, type, grid, pointers);
}

// Until all that was launched on the operator's stream is done.
void Wait(const OpContext& context);

// A scalar attribute as the CPU operator uses it: rounded to the dtype of the data.
inline float Rounded(int type, float value) {
  return type == mshadow::kFloat16 ? static_cast<float>(ops::half_t(value)) : value;
}

// ------------------------------------------------------------------ errors found by kernels
// A word of memory that kernels can write and the host reads: the number of a message, or 0.
// It is looked at before and after each launch, so an error may be told by a later operator.
int* ErrorWord(const OpContext& context);

// The number for a message; the same message has the same number.
int ErrorNumber(const std::string& message);

}  // namespace gpu

}  // namespace memonger

#endif  // MEMONGER_OPS_GPU_LAUNCH_H_
