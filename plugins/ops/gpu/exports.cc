/* The part of the plugin's C interface that concerns GPU kernels: memonger doctor and tests. */
#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "ops/frame/common.h"
#include "ops/gpu/compile.h"
#include "ops/gpu/libraries.h"
#include "ops/register.h"

#define MEMONGER_API extern "C" __attribute__((visibility("default")))

namespace {

// Runs make() and gives its text, or that of its exception; 0 or 1.
template <class Make>
int TextOf(Make make, char* buffer, size_t size) {
  int result = 0;
  std::string text;
  try {
    text = make();
  } catch (const std::exception& error) {
    text = error.what();
    result = 1;
  }
  if (buffer && size) {
    const size_t count = std::min(size - 1, text.size());
    std::memcpy(buffer, text.data(), count);
    buffer[count] = '\0';
  }
  return result;
}

}  // namespace

// Compiles cuda/<file> as a launch would, without the cache; needs no device. The text is the
// number of bytes of machine code, or what is wrong.
MEMONGER_API int memonger_gpu_compile(const char* file, int bits, int architecture, char* message,
                                      size_t size) {
  return TextOf(
      [=] {
        return std::to_string(
            memonger::gpu::CompileKernels(file, bits, architecture, false).size());
      },
      message, size);
}

// Version and name of NVRTC, or why there is none.
MEMONGER_API int memonger_gpu_compiler(char* message, size_t size) {
  return TextOf(
      [] {
        const auto& nvrtc = memonger::gpu::GetNvrtc();
        int major = 0, minor = 0;
        nvrtc.version(&major, &minor);
        return "NVRTC " + std::to_string(major) + "." + std::to_string(minor) + " (" + nvrtc.name +
               ")";
      },
      message, size);
}

// Whether the operator can run on a GPU: 1, or 0.
MEMONGER_API int memonger_gpu_serves(const char* name) {
  static const auto& computes = nnvm::Op::GetAttr<mxnet::FCompute>("FCompute<gpu>");
  return computes.count(nnvm::Op::Get(name)) ? 1 : 0;
}

// For tests with a pretended driver: from now on the operators' GPU code serves the CPU, too.
MEMONGER_API void memonger_gpu_stand_in() { memonger::ops::RegisterGpuAsCpu(); }
