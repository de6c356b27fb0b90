#include "ops/gpu/launch.h"

#include <dlfcn.h>

#include <exception>
#include <map>
#include <mutex>
#include <string>

#include "core/gpu/compile.h"
#include "core/gpu/libraries.h"

namespace memonger {
namespace gpu {
namespace {

constexpr int kComputeMajor = 75, kComputeMinor = 76;  // attributes of devices

int BitsOf(int place) { return 16 << place; }
int PlaceOf(int type) { return type == mshadow::kFloat16 ? 0 : type == mshadow::kFloat64 ? 2 : 1; }

// What make() gives; what it throws is an error of MXNet's.
template <class Make>
auto OrFatal(Make make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::exception& error) {
    throw dmlc::Error(error.what());
  }
}

const Driver& Cuda() {
  return OrFatal([]() -> const Driver& { return GetDriver(); });
}

// The folder `cuda` beside the plugin.
std::string KernelFolder() {
  Dl_info info;
  CHECK(dladdr(reinterpret_cast<void*>(&LaunchPointers), &info) != 0) << "the plugin has no path";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return (slash == std::string::npos ? std::string(".") : path.substr(0, slash)) + "/cuda";
}

std::string CodeOf(const std::string& file, int bits, int architecture, bool use_cache) {
  static const std::string folder = KernelFolder();
  return OrFatal([&] { return CompileKernels(folder, file, bits, architecture, use_cache); });
}

std::string Describe(Code code) { return Cuda().Describe(code); }

#define MEMONGER_CHECK_CUDA(CALL) \
  if (const Code failed = (CALL)) LOG(FATAL) << "memonger: " << Describe(failed)

// A GPU as MXNet numbers them, with all that was loaded onto it.
class Device {
 public:
  explicit Device(int number) {
    const Driver& driver = Cuda();
    DeviceNumber device = 0;
    int major = 0, minor = 0;
    MEMONGER_CHECK_CUDA(driver.get_device(&device, number)) << ", no GPU " << number;
    MEMONGER_CHECK_CUDA(driver.get_attribute(&major, kComputeMajor, device));
    MEMONGER_CHECK_CUDA(driver.get_attribute(&minor, kComputeMinor, device));
    architecture_ = 10 * major + minor;
    MEMONGER_CHECK_CUDA(driver.retain_context(&context_, device)) << ", the context of the GPU";
  }

  // MXNet's own context, which its threads usually have made current already.
  void MakeCurrent() const {
    Handle current = nullptr;
    MEMONGER_CHECK_CUDA(Cuda().get_current(&current));
    if (current != context_) MEMONGER_CHECK_CUDA(Cuda().set_current(context_));
  }

  Handle FindFunction(const Kernel& kernel, int bits) {
    std::lock_guard<std::mutex> lock(mutex_);
    Handle function = nullptr;
    MEMONGER_CHECK_CUDA(
        Cuda().get_function(&function, FindModule(kernel.file, bits), kernel.name))
        << ", no kernel " << kernel.name << " in " << kernel.file;
    return function;
  }

 private:
  Handle FindModule(const std::string& file, int bits) {
    Handle& module = modules_[file + std::to_string(bits)];
    if (module != nullptr) return module;
    const auto load = Cuda().load_module;
    if (load(&module, CodeOf(file, bits, architecture_, true).c_str()) != 0) {
      module = nullptr;  // a cached file that this driver does not take: compile again
      MEMONGER_CHECK_CUDA(load(&module, CodeOf(file, bits, architecture_, false).c_str()))
          << ", kernels of " << file << " for sm_" << architecture_;
    }
    return module;
  }

  int architecture_ = 0;
  Handle context_ = nullptr;
  std::mutex mutex_;
  std::map<std::string, Handle> modules_;
};

Device* DeviceOf(int number) {
  static std::mutex mutex;
  static std::atomic<Device*> devices[kMostDevices];  // as long as the process
  CHECK_LT(number, kMostDevices) << "memonger knows no more GPUs";
  if (Device* device = devices[number]) return device;
  std::lock_guard<std::mutex> lock(mutex);
  if (devices[number] == nullptr) devices[number] = new Device(number);
  return devices[number];
}

// The first member of mshadow's GPU stream is the CUDA stream.
Handle StreamOf(const OpContext& context) {
  void* stream = context.run_ctx.stream;
  return stream == nullptr ? nullptr : *static_cast<Handle*>(stream);
}

}  // namespace

void Wait(const OpContext& context) { MEMONGER_CHECK_CUDA(Cuda().wait(StreamOf(context))); }

void LaunchPointers(const OpContext& context, Kernel* kernel, int type, int64_t blocks,
                    void** arguments) {
  if (blocks == 0) return;
  // Threads are counted in 32 bits.
  CHECK_LE(blocks, 0xffffffffll / kThreads)
      << "memonger: " << kernel->name << " over too many elements";
  const int number = context.run_ctx.ctx.dev_id, place = PlaceOf(type);
  Device* const device = DeviceOf(number);
  device->MakeCurrent();
  std::atomic<void*>& known = kernel->code[number][place];
  Handle code = known.load(std::memory_order_acquire);
  if (code == nullptr) {
    code = device->FindFunction(*kernel, BitsOf(place));
    known.store(code, std::memory_order_release);
  }
  MEMONGER_CHECK_CUDA(Cuda().launch(code, static_cast<unsigned>(blocks), 1, 1, kThreads, 1, 1,
                                         0, StreamOf(context), arguments, nullptr))
      << ", launch of " << kernel->name << " with " << blocks << " blocks of " << kThreads
      << " threads";
}

}  // namespace gpu
}  // namespace memonger
