#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "ops/gpu/launch.h"
#include "ops/gpu/compile.h"
#include "ops/gpu/libraries.h"

namespace memonger {
namespace gpu {
namespace {

constexpr int kComputeMajor = 75, kComputeMinor = 76;  // attributes of devices
constexpr unsigned kPortableMapped = 3;                // host memory that every context can write

int BitsOf(int type) {
  return type == mshadow::kFloat16 ? 16 : type == mshadow::kFloat64 ? 64 : 32;
}

void Check(Code code, const std::string& what) {
  CHECK_EQ(code, 0) << "memonger: " << what << ": " << GetDriver().Describe(code);
}

// A GPU as MXNet numbers them, with all that was loaded onto it.
class Device {
 public:
  explicit Device(int number) : number_(number) {
    const Driver& driver = GetDriver();
    DeviceNumber device = 0;
    int major = 0, minor = 0;
    Check(driver.get_device(&device, number), "no GPU " + std::to_string(number));
    Check(driver.get_attribute(&major, kComputeMajor, device), "compute capability");
    Check(driver.get_attribute(&minor, kComputeMinor, device), "compute capability");
    architecture_ = 10 * major + minor;
    Check(driver.retain_context(&context_, device), "the context of the GPU");
  }

  // MXNet's own context, which its threads usually have made current already.
  void MakeCurrent() const {
    Handle current = nullptr;
    Check(GetDriver().get_current(&current), "the current context");
    if (current != context_) Check(GetDriver().set_current(context_), "setting the context");
  }

  Handle FindFunction(const Kernel& kernel, int bits) {
    std::lock_guard<std::mutex> lock(mutex_);
    Handle& function = functions_[kernel.name + std::to_string(bits)];
    if (function == nullptr) {
      Check(GetDriver().get_function(&function, FindModule(kernel.file, bits), kernel.name),
            std::string("no kernel ") + kernel.name + " in " + kernel.file);
    }
    return function;
  }

  int* Word() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (word_ == nullptr) {
      void* memory = nullptr;
      Check(GetDriver().allocate_host(&memory, sizeof(int), kPortableMapped), "host memory");
      *static_cast<int*>(memory) = 0;
      word_ = static_cast<int*>(memory);
    }
    return word_;
  }

  int TakeError() {
    int* word = word_;
    return word == nullptr ? 0 : __atomic_exchange_n(word, 0, __ATOMIC_RELAXED);
  }

 private:
  Handle FindModule(const std::string& file, int bits) {
    Handle& module = modules_[file + std::to_string(bits)];
    if (module != nullptr) return module;
    const Driver& driver = GetDriver();
    if (driver.load_module(&module, CompileKernels(file, bits, architecture_).c_str()) != 0) {
      module = nullptr;  // a cached file that this driver does not take: compile again
      Check(driver.load_module(&module, CompileKernels(file, bits, architecture_, false).c_str()),
            "kernels of " + file + " for GPU " + std::to_string(number_) + ", sm_" +
                std::to_string(architecture_));
    }
    return module;
  }

  const int number_;
  int architecture_ = 0;
  Handle context_ = nullptr;
  std::atomic<int*> word_{nullptr};
  std::mutex mutex_;
  std::map<std::string, Handle> modules_;
  std::map<std::string, Handle> functions_;
};

Device* DeviceOf(const OpContext& context) {
  static std::mutex mutex;
  static std::map<int, Device*> devices;  // as long as the process
  const int number = context.run_ctx.ctx.dev_id;
  std::lock_guard<std::mutex> lock(mutex);
  Device*& device = devices[number];
  if (device == nullptr) device = new Device(number);
  return device;
}

struct Messages {
  std::mutex mutex;
  std::vector<std::string> texts;
};

Messages* GetMessages() {
  static Messages messages;
  return &messages;
}

void RaiseError(Device* device) {
  const int number = device->TakeError();
  if (number == 0) return;
  Messages* messages = GetMessages();
  std::lock_guard<std::mutex> lock(messages->mutex);
  LOG(FATAL) << messages->texts[number - 1];
}

// The first member of mshadow's GPU stream is the CUDA stream.
Handle StreamOf(const OpContext& context) {
  void* stream = context.run_ctx.stream;
  return stream == nullptr ? nullptr : *static_cast<Handle*>(stream);
}

}  // namespace

void Wait(const OpContext& context) {
  Check(GetDriver().wait(StreamOf(context)), "waiting for kernels");
}

int* ErrorWord(const OpContext& context) { return DeviceOf(context)->Word(); }

int ErrorNumber(const std::string& message) {
  Messages* messages = GetMessages();
  std::lock_guard<std::mutex> lock(messages->mutex);
  auto& texts = messages->texts;
  const auto found = std::find(texts.begin(), texts.end(), message);
  if (found != texts.end()) return static_cast<int>(found - texts.begin()) + 1;
  texts.push_back(message);
  return static_cast<int>(texts.size());
}

void LaunchPointers(const OpContext& context, const Kernel& kernel, int type, const Grid& grid,
                    void** arguments) {
  if (grid.blocks == 0) return;
  Device* device = DeviceOf(context);
  device->MakeCurrent();
  RaiseError(device);
  Handle function = device->FindFunction(kernel, BitsOf(type));
  CHECK_LE(grid.blocks, 0x7fffffff) << "memonger: " << kernel.name << " over too many elements";
  Check(GetDriver().launch(function, static_cast<unsigned>(grid.blocks), 1, 1, grid.threads, 1, 1,
                           grid.shared_bytes, StreamOf(context), arguments, nullptr),
        std::string("launch of ") + kernel.name + " with " + std::to_string(grid.blocks) +
            " blocks of " + std::to_string(grid.threads) + " threads");
  RaiseError(device);
}

}  // namespace gpu
}  // namespace memonger
