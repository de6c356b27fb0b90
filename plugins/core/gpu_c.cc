/* C calls for GPU kernels: what memonger doctor and the benchmarks of kernels load. */
#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "core/gpu/compile.h"
#include "core/gpu/libraries.h"

#define MEMONGER_API extern "C" __attribute__((visibility("default")))

namespace {

// Runs make() and gives its bytes, or the text of its exception; how many, negative for the latter.
template <class Make>
int64_t BytesOf(Make make, char* buffer, int64_t size) {
  int64_t sign = 1;
  std::string bytes;
  try {
    bytes = make();
  } catch (const std::exception& error) {
    bytes = error.what();
    sign = -1;
  }
  const int64_t count = std::min(size, static_cast<int64_t>(bytes.size()));
  std::memcpy(buffer, bytes.data(), static_cast<size_t>(count));
  return sign * count;
}

}  // namespace

// Version and name of NVRTC, or why there is none.
MEMONGER_API int64_t memonger_gpu_compiler(char* buffer, int64_t size) {
  return BytesOf(
      [] {
        const auto& nvrtc = memonger::gpu::GetNvrtc();
        int major = 0, minor = 0;
        nvrtc.version(&major, &minor);
        return "NVRTC " + std::to_string(major) + "." + std::to_string(minor) + " (" + nvrtc.name +
               ")";
      },
      buffer, size);
}

// Architectures that NVRTC compiles for, in decimal, or what is wrong.
MEMONGER_API int64_t memonger_gpu_architectures(char* buffer, int64_t size) {
  return BytesOf(
      [] {
        std::string text;
        for (const int architecture : memonger::gpu::Architectures()) {
          text += std::to_string(architecture) + " ";
        }
        return text;
      },
      buffer, size);
}

// Machine code of a source in a folder, as a launch would compile it, without the cache; needs no
// device. Or what is wrong.
MEMONGER_API int64_t memonger_gpu_compile(const char* folder, const char* file, int32_t bits,
                                          int32_t architecture, char* buffer, int64_t size) {
  return BytesOf(
      [=] { return memonger::gpu::CompileKernels(folder, file, bits, architecture, false); },
      buffer, size);
}
