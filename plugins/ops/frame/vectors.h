/*
 * Loops compiled twice: for any processor and for AVX2. The results are the same, for products and
 * sums are not fused (-ffp-contract=off in build.py).
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

// `flatten` inlines the loop and what it calls, so they become AVX2 code as well.
template <class Loop>
__attribute__((target("avx2"), flatten, noinline)) void RunWithAvx2(Loop loop) {
  loop();
}

// Runs the loop, which captures by value: the compiler then sees that its bounds stay as they are.
template <class Loop>
inline void Vectorised(Loop loop) {
  if (HasAvx2()) {
    RunWithAvx2(loop);
  } else {
    loop();
  }
}
#else
template <class Loop>
inline void Vectorised(Loop loop) {
  loop();
}
#endif

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_FRAME_VECTORS_H_
