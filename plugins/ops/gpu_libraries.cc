#include "./gpu_libraries.h"

#include <dlfcn.h>
#include <dmlc/logging.h>

#include <cstdlib>
#include <vector>

namespace memonger {
namespace gpu {
namespace {

// What is in the process already (libmxnet of mxnet-cu112 needs libnvrtc.so.11.2) comes first.
const char* const kNvrtcNames[] = {"libnvrtc.so.11.2", "libnvrtc.so.12", "libnvrtc.so.13",
                                   "libnvrtc.so"};

template <class Function>
void Find(void* library, const char* library_name, const char* symbol, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, symbol));
  CHECK(*function != nullptr) << library_name << " has no " << symbol
                              << "; it is too old or no CUDA library";
}

Driver LoadDriver() {
  const char* const name = "libcuda.so.1";
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  CHECK(library != nullptr) << "memonger's GPU kernels need the CUDA driver: " << dlerror();
  Driver d;
  Find(library, name, "cuDeviceGet", &d.get_device);
  Find(library, name, "cuDeviceGetAttribute", &d.get_attribute);
  Find(library, name, "cuDevicePrimaryCtxRetain", &d.retain_context);
  Find(library, name, "cuCtxGetCurrent", &d.get_current);
  Find(library, name, "cuCtxSetCurrent", &d.set_current);
  Find(library, name, "cuModuleLoadData", &d.load_module);
  Find(library, name, "cuModuleGetFunction", &d.get_function);
  Find(library, name, "cuLaunchKernel", &d.launch);
  Find(library, name, "cuStreamSynchronize", &d.wait);
  Find(library, name, "cuMemHostAlloc", &d.allocate_host);
  Find(library, name, "cuGetErrorString", &d.error_text);
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
  CHECK(library != nullptr)
      << "memonger compiles its GPU kernels with NVRTC, and there is none: pip install "
      << "nvidia-cuda-nvrtc-cu11==11.8.89, and set MEMONGER_NVRTC to the path of its libnvrtc.so "
      << "(tried: " << errors << ")";
  const char* const name = n.name.c_str();
  Find(library, name, "nvrtcVersion", &n.version);
  Find(library, name, "nvrtcGetNumSupportedArchs", &n.count_architectures);
  Find(library, name, "nvrtcGetSupportedArchs", &n.architectures);
  Find(library, name, "nvrtcCreateProgram", &n.create);
  Find(library, name, "nvrtcDestroyProgram", &n.destroy);
  Find(library, name, "nvrtcCompileProgram", &n.compile);
  Find(library, name, "nvrtcGetProgramLogSize", &n.log_size);
  Find(library, name, "nvrtcGetProgramLog", &n.log);
  Find(library, name, "nvrtcGetCUBINSize", &n.cubin_size);
  Find(library, name, "nvrtcGetCUBIN", &n.cubin);
  Find(library, name, "nvrtcGetPTXSize", &n.ptx_size);
  Find(library, name, "nvrtcGetPTX", &n.ptx);
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
