#include "core/gpu/compile.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "core/gpu/libraries.h"

namespace memonger {
namespace gpu {
namespace {

const char* const kHeaders[] = {"real.cuh", "layout.cuh"};  // included by every source

bool ReadFile(const std::string& path, std::string* text) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream whole;
  whole << file.rdbuf();
  *text = whole.str();
  return file.good();
}

[[noreturn]] void Fail(const std::string& what) { throw std::runtime_error(what); }

// Where a call of NVRTC failed.
void Check(Code code, const std::string& what) {
  if (code != 0) Fail(what + " (NVRTC error " + std::to_string(code) + ")");
}

std::string ReadSource(const std::string& folder, const std::string& file) {
  const std::string path = folder + "/" + file;
  std::string text;
  if (!ReadFile(path, &text)) {
    Fail("memonger's kernel source " + path + " cannot be read; reinstall memonger");
  }
  return text;
}

// FNV-1a over both halves of 128 bits; a name for files, no protection.
std::string Hash(const std::string& text) {
  uint64_t a = 0xcbf29ce484222325u, b = 0x9ae16a3b2f90404fu;
  for (const char c : text) {
    a = (a ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    b = (b ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    b ^= b >> 29;
  }
  char name[33];
  std::snprintf(name, sizeof(name), "%016llx%016llx", static_cast<unsigned long long>(a),
                static_cast<unsigned long long>(b));
  return name;
}

std::string CacheFolder() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (!set("MEMONGER_CACHE_DIR").empty()) return set("MEMONGER_CACHE_DIR");
  if (!set("XDG_CACHE_HOME").empty()) return set("XDG_CACHE_HOME") + "/memonger";
  return set("HOME").empty() ? "" : set("HOME") + "/.cache/memonger";
}

// A cached file is the hash of the code, then the code: what was cut short is not used, nor what
// somebody else has written or could write to.
bool ReadCache(const std::string& path, std::string* code) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0 || status.st_uid != geteuid() ||
      (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return false;
  }
  std::string text;
  if (!ReadFile(path, &text) || text.size() <= 32) return false;
  *code = text.substr(32);
  return Hash(*code) == text.substr(0, 32);
}

void WriteCache(const std::string& folder, const std::string& path, const std::string& code) {
  for (size_t end = 1; end <= folder.size(); ++end) {
    if (end == folder.size() || folder[end] == '/') mkdir(folder.substr(0, end).c_str(), 0700);
  }
  std::string part = path + ".XXXXXX";
  const int descriptor = mkstemp(&part[0]);
  if (descriptor < 0) return;
  const std::string text = Hash(code) + code;
  const bool whole =
      write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (close(descriptor) != 0 || !whole || std::rename(part.c_str(), path.c_str()) != 0) {
    std::remove(part.c_str());
  }
}

struct Sources {
  std::string kernels, headers[2];
};

// The newest architecture that NVRTC compiles for and the device runs.
int BestArchitecture(int wanted) {
  int best = 0;
  for (const int architecture : Architectures()) {
    if (architecture <= wanted && architecture > best) best = architecture;
  }
  if (best == 0) {
    Fail(GetNvrtc().name + " does not compile for this device, sm_" + std::to_string(wanted));
  }
  return best;
}

std::string Compile(const std::string& path, const std::string& file, const Sources& sources,
                    std::vector<std::string> options, int architecture) {
  const Nvrtc& nvrtc = GetNvrtc();
  const int best = BestArchitecture(architecture);
  const bool ptx = best != architecture;
  options.insert(options.begin(), "--gpu-architecture=" + std::string(ptx ? "compute_" : "sm_") +
                                      std::to_string(best));
  std::fprintf(stderr, "memonger compiles GPU kernels, once: %s with %s for sm_%d\n", file.c_str(),
               nvrtc.name.c_str(), architecture);
  Handle program = nullptr;
  const char* const headers[] = {sources.headers[0].c_str(), sources.headers[1].c_str()};
  Code code = nvrtc.create(&program, sources.kernels.c_str(), file.c_str(), 2, headers, kHeaders);
  Check(code, nvrtc.name + " does not take " + file);
  std::vector<const char*> pointers;
  for (const std::string& option : options) pointers.push_back(option.c_str());
  code = nvrtc.compile(program, static_cast<int>(pointers.size()), pointers.data());
  size_t size = 0;
  if (code != 0) {
    std::string log;
    if (nvrtc.log_size(program, &size) == 0 && size > 1) {
      log.resize(size);
      nvrtc.log(program, &log[0]);
      log.resize(size - 1);  // the terminator
    }
    nvrtc.destroy(&program);
    Fail("memonger's kernels in " + path + " do not compile with " + nvrtc.name + " (NVRTC error " +
         std::to_string(code) + "), options " + options[0] + " " + options[1] + ":\n" + log);
  }
  std::string result;
  code = ptx ? nvrtc.ptx_size(program, &size) : nvrtc.cubin_size(program, &size);
  if (code == 0) {
    result.resize(size);
    code = ptx ? nvrtc.ptx(program, &result[0]) : nvrtc.cubin(program, &result[0]);
  }
  nvrtc.destroy(&program);
  Check(code, nvrtc.name + " gives no code for " + file);
  return result;
}

}  // namespace

std::vector<int> Architectures() {
  const Nvrtc& nvrtc = GetNvrtc();
  int count = 0;
  Check(nvrtc.count_architectures(&count), nvrtc.name + " does not answer");
  std::vector<int> known(count);
  Check(nvrtc.architectures(known.data()), nvrtc.name + " does not answer");
  return known;
}

std::string CompileKernels(const std::string& folder, const std::string& file, int bits,
                           int architecture, bool use_cache) {
  const Sources sources{ReadSource(folder, file),
                        {ReadSource(folder, kHeaders[0]), ReadSource(folder, kHeaders[1])}};
  // No fused multiply-add: results are those of the CPU.
  const std::vector<std::string> options = {"-DREAL_BITS=" + std::to_string(bits), "--std=c++14",
                                            "--fmad=false"};
  std::string everything = sources.kernels + sources.headers[0] + sources.headers[1];
  for (const std::string& option : options) everything += option;
  const std::string cache = use_cache ? CacheFolder() : "";
  const std::string path = cache + "/" + file + "-" + std::to_string(bits) + "-sm" +
                           std::to_string(architecture) + "-" + Hash(everything);
  std::string code;
  if (!cache.empty() && ReadCache(path, &code)) return code;
  code = Compile(folder + "/" + file, file, sources, options, architecture);
  if (!cache.empty()) WriteCache(cache, path, code);
  return code;
}

}  // namespace gpu
}  // namespace memonger
