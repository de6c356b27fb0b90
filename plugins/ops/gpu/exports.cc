/* The part of the plugin's C interface that concerns GPU kernels, for tests. */
#include "ops/frame/common.h"
#include "ops/register.h"

#define MEMONGER_API extern "C" __attribute__((visibility("default")))

// Whether the operator can run on a GPU: 1, or 0.
MEMONGER_API int memonger_gpu_serves(const char* name) {
  static const auto& computes = nnvm::Op::GetAttr<mxnet::FCompute>("FCompute<gpu>");
  return computes.count(nnvm::Op::Get(name)) ? 1 : 0;
}

// For tests with a pretended driver: from now on the operators' GPU code serves the CPU, too.
MEMONGER_API void memonger_gpu_stand_in() { memonger::ops::RegisterGpuAsCpu(); }
