/*
 * Loops compiled three times: for any processor, for AVX2 and for AVX-512. The results are the
 * same, for products and sums are not fused (-ffp-contract=off in build.py).
 */
#ifndef MEMONGER_OPS_FRAME_VECTORS_H_
#define MEMONGER_OPS_FRAME_VECTORS_H_

namespace memonger {
namespace ops {

#if defined(__x86_64__) && defined(__GNUC__)
inline bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}

inline bool HasAvx512() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}

// `flatten` inlines the loop and what it calls, so they become SIMD code of that kind as well.
template <class Loop>
__attribute__((target("avx2"), flatten, noinline)) void RunWithAvx2(Loop loop) {
  loop();
}

template <class Loop>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"), flatten, noinline)) void RunWithAvx512(
    Loop loop) {
  loop();
}

// Runs the loop, which captures by value: the compiler then sees that its bounds stay as they are.
// `bits`: the widest vectors that pay for it.
template <int bits = 512, class Loop>
inline void Vectorised(Loop loop) {
  if (bits >= 512 && HasAvx512()) {
    RunWithAvx512(loop);
  } else if (HasAvx2()) {
    RunWithAvx2(loop);
  } else {
    loop();
  }
}
#else
template <int bits = 512, class Loop>
inline void Vectorised(Loop loop) {
  loop();
}
#endif

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_FRAME_VECTORS_H_
