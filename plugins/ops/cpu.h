/*
 * Which vector instructions operators use: those of the processor, but no more than the variable
 * DNNL_MAX_CPU_ISA allows (SSE41, AVX, AVX2, ...), which MKLDNN reads as well.
 *
 * Without MXNet's headers: compiled once.
 */
#ifndef MEMONGER_OPS_CPU_H_
#define MEMONGER_OPS_CPU_H_

namespace memonger {
namespace ops {

enum class Cpu {
  kAny,
  kAvx2,    // and fused multiply-adds
  kAvx512,  // F, BW, DQ and VL
};

// Found at the first call.
Cpu CpuInUse();

inline bool HasAvx2() { return CpuInUse() >= Cpu::kAvx2; }
inline bool HasAvx512() { return CpuInUse() == Cpu::kAvx512; }

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_CPU_H_
