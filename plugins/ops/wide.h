/*
 * The same code for processors with AVX2 and without.
 *
 * MEMONGER_WITH_AVX2(Name, (int a, float* b), (a, b)) makes Name of the always inlined NameBody,
 * compiled twice; which one runs is decided when it is first called.
 */
#ifndef MEMONGER_OPS_WIDE_H_
#define MEMONGER_OPS_WIDE_H_

#if defined(__x86_64__) && defined(__GNUC__)
#define MEMONGER_INLINE inline __attribute__((always_inline))
#define MEMONGER_WITH_AVX2(NAME, PARAMETERS, ARGUMENTS)                                      \
  __attribute__((target("avx2"))) void NAME##Wide PARAMETERS { NAME##Body ARGUMENTS; }       \
  void NAME PARAMETERS {                                                                     \
    static const bool has_avx2 = __builtin_cpu_supports("avx2");                             \
    if (has_avx2) {                                                                          \
      NAME##Wide ARGUMENTS;                                                                  \
    } else {                                                                                 \
      NAME##Body ARGUMENTS;                                                                  \
    }                                                                                        \
  }
#else
#define MEMONGER_INLINE inline
#define MEMONGER_WITH_AVX2(NAME, PARAMETERS, ARGUMENTS) \
  void NAME PARAMETERS { NAME##Body ARGUMENTS; }
#endif

#endif  // MEMONGER_OPS_WIDE_H_
