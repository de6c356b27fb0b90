/* The C interface of libmemonger_mxnet.so, for memonger/mx/plugin/loading.py and executor_hooks.py. */
#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "mxnet/arena.h"
#include "mxnet/capture.h"
#include "mxnet/layouts.h"
#include "mxnet/passes.h"
#include "mxnet/self_check.h"
#include "ops/register.h"

#define MEMONGER_API extern "C" __attribute__((visibility("default")))

namespace {

size_t CopyOut(const std::string& text, char* buffer, size_t size) {
  if (buffer && size) {
    const size_t count = std::min(size - 1, text.size());
    std::memcpy(buffer, text.data(), count);
    buffer[count] = '\0';
  }
  return text.size() + 1;
}

std::string& Captured() {
  static thread_local std::string text;
  return text;
}

}  // namespace

// Changes with every change of this interface, of the operators or of where memory lies; plugin.py
// refuses another one.
MEMONGER_API int memonger_interface_version() { return 4; }

// Writes what failed; returns 0 when nothing did. Registers nothing.
MEMONGER_API int memonger_self_check(char* message, size_t size) {
  const std::string failed = memonger::SelfCheck();
  CopyOut(failed, message, size);
  return failed.empty() ? 0 : 1;
}

// Registers the operators and wraps the passes, once in a process; both stay off until
// memonger_enable. Returns 0, or 1 with a message.
MEMONGER_API int memonger_register(char* message, size_t size) {
  static bool done = false;
  if (done) return 0;
  try {
    const std::string reason = memonger::WhyNotInstall();
    if (!reason.empty()) {
      CopyOut(reason, message, size);
      return 1;
    }
    memonger::ops::RegisterAll();
    memonger::RegisterArrayImplementations();
    memonger::InstallPasses();
  } catch (const std::exception& error) {
    CopyOut(error.what(), message, size);
    return 1;
  }
  done = true;
  return 0;
}

MEMONGER_API void memonger_enable(int recompute, int storage) {
  memonger::Switches switches;
  switches.recompute = recompute != 0;
  switches.storage = storage != 0;
  memonger::SetSwitches(switches);
}

MEMONGER_API void memonger_capture_begin() { memonger::BeginCapture(); }

// Ends the capture and returns the bytes that memonger_capture_read needs.
MEMONGER_API size_t memonger_capture_end() {
  Captured() = memonger::EndCapture();
  return Captured().size() + 1;
}

MEMONGER_API void memonger_capture_read(char* buffer, size_t size) {
  CopyOut(Captured(), buffer, size);
  Captured().clear();
}

// A bind starts in this thread whose executor will be handed to memonger_bind_end.
MEMONGER_API void memonger_bind_begin() { memonger::ExpectPlacement(); }

// Gives an executor that was just made its arena; `executor` is null when the bind failed,
// `shared` the executor whose memory it may share, or null. An executor that will never run (its
// memory plan is being captured) gets none. Returns 0, or 1 with a message.
MEMONGER_API int memonger_bind_end(void* executor, void* shared, char* message, size_t size) {
  try {
    memonger::Place(memonger::Capturing() ? nullptr : static_cast<mxnet::Executor*>(executor),
                    static_cast<mxnet::Executor*>(shared));
  } catch (const std::exception& error) {
    CopyOut(error.what(), message, size);
    return 1;
  }
  return 0;
}
