#include "core/gpu/libraries.h"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <vector>

namespace memonger {
namespace gpu {
namespace {

// What is in the process already (libmxnet of mxnet-cu112 needs libnvrtc.so.11.2) comes first.
const char* const kNvrtcNames[] = {"libnvrtc.so.11.2", "libnvrtc.so.12", "libnvrtc.so.13",
                                   "libnvrtc.so"};

struct Library {
  void* handle;
  const char* name;

  template <class Function>
  const Library& Find(const char* symbol, Function* function) const {
    *function = reinterpret_cast<Function>(dlsym(handle, symbol));
    if (*function == nullptr) {
      throw std::runtime_error(std::string(name) + " has no " + symbol +
                               "; it is too old or no CUDA library");
    }
    return *this;
  }
};

Driver LoadDriver() {
  const char* const name = "libcuda.so.1";
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error(std::string("memonger's GPU kernels need the CUDA driver: ") +
                             dlerror());
  }
  Driver d;
  Library{library, name}
      .Find("cuDeviceGet", &d.get_device)
      .Find("cuDeviceGetAttribute", &d.get_attribute)
      .Find("cuDevicePrimaryCtxRetain", &d.retain_context)
      .Find("cuCtxGetCurrent", &d.get_current)
      .Find("cuCtxSetCurrent", &d.set_current)
      .Find("cuModuleLoadData", &d.load_module)
      .Find("cuModuleGetFunction", &d.get_function)
      .Find("cuLaunchKernel", &d.launch)
      .Find("cuStreamSynchronize", &d.wait)
      .Find("cuGetErrorString", &d.error_text);
  return d;
}

Nvrtc LoadNvrtc() {
  std::vector<std::string> names;
  const char* chosen = std::getenv("MEMONGER_NVRTC");
  if (chosen != nullptr && *chosen) {
    names.emplace_back(chosen);
  } else {
    names.assign(std::begin(kNvrtcNames), std::end(kNvrtcNames));
  }
  void* library = nullptr;
  std::string errors;
  Nvrtc n;
  for (const std::string& name : names) {
    library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    n.name = name;
    if (library != nullptr) break;
    errors += std::string(errors.empty() ? "" : "; ") + dlerror();
  }
  if (library == nullptr) {
    throw std::runtime_error(
        "memonger compiles its GPU kernels with NVRTC, and there is none: pip install "
        "nvidia-cuda-nvrtc-cu11==11.8.89, and set MEMONGER_NVRTC to the path of its libnvrtc.so "
        "(tried: " + errors + ")");
  }
  Library{library, n.name.c_str()}
      .Find("nvrtcVersion", &n.version)
      .Find("nvrtcGetNumSupportedArchs", &n.count_architectures)
      .Find("nvrtcGetSupportedArchs", &n.architectures)
      .Find("nvrtcCreateProgram", &n.create)
      .Find("nvrtcDestroyProgram", &n.destroy)
      .Find("nvrtcCompileProgram", &n.compile)
      .Find("nvrtcGetProgramLogSize", &n.log_size)
      .Find("nvrtcGetProgramLog", &n.log)
      .Find("nvrtcGetCUBINSize", &n.cubin_size)
      .Find("nvrtcGetCUBIN", &n.cubin)
      .Find("nvrtcGetPTXSize", &n.ptx_size)
      .Find("nvrtcGetPTX", &n.ptx);
  return n;
}

}  // namespace

std::string Driver::Describe(Code code) const {
  const char* text = nullptr;
  if (error_text(code, &text) != 0 || text == nullptr) text = "unknown error";
  return std::string(text) + " (CUDA driver error " + std::to_string(code) + ")";
}

const Driver& GetDriver() {
  static const Driver driver = LoadDriver();
  return driver;
}

const Nvrtc& GetNvrtc() {
  static const Nvrtc nvrtc = LoadNvrtc();
  return nvrtc;
}

}  // namespace gpu
}  // namespace memonger
