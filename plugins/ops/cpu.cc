#include "./cpu.h"

#include <cstdlib>
#include <cstring>

namespace memonger {
namespace ops {
namespace {

#if defined(__x86_64__) && defined(__GNUC__)
Cpu Available() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Cpu::kAny;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
             ? Cpu::kAvx512
             : Cpu::kAvx2;
}
#else
Cpu Available() { return Cpu::kAny; }
#endif

Cpu Allowed() {
  const char* name = std::getenv("DNNL_MAX_CPU_ISA");
  if (name == nullptr) return Cpu::kAvx512;
  if (std::strcmp(name, "SSE41") == 0 || std::strcmp(name, "AVX") == 0) return Cpu::kAny;
  return std::strcmp(name, "AVX2") == 0 ? Cpu::kAvx2 : Cpu::kAvx512;
}

}  // namespace

Cpu CpuInUse() {
  static const Cpu cpu = Available() < Allowed() ? Available() : Allowed();
  return cpu;
}

}  // namespace ops
}  // namespace memonger
