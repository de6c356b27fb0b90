/*
 * The same code for processors with AVX2 and without.
 *
 * MEMONGER_WITH_AVX2(Name, (int a, float* b), (a, b)) makes Name of the always inlined NameBody,
 * compiled twice; which one runs is decided when it is called (cpu.h). MEMONGER_WITH_WIDEST has
 * AVX-512 as a third one, and fused multiply-adds with both: for functions whose last digits may
 * differ between processors.
 */
#ifndef MEMONGER_OPS_WIDE_H_
#define MEMONGER_OPS_WIDE_H_

#include "./cpu.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define MEMONGER_INLINE inline __attribute__((always_inline))
#define MEMONGER_AVX2 __attribute__((target("avx2")))
#define MEMONGER_WITH_AVX2(NAME, PARAMETERS, ARGUMENTS)                                      \
  MEMONGER_AVX2 void NAME##Wide PARAMETERS { NAME##Body ARGUMENTS; }                         \
  void NAME PARAMETERS {                                                                     \
    if (HasAvx2()) {                                                                         \
      NAME##Wide ARGUMENTS;                                                                  \
    } else {                                                                                 \
      NAME##Body ARGUMENTS;                                                                  \
    }                                                                                        \
  }
#if defined(__clang__) || __GNUC__ < 8
#define MEMONGER_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,fma"
#else
#define MEMONGER_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512"
#endif
#define MEMONGER_WIDEST __attribute__((target(MEMONGER_AVX512)))
#define MEMONGER_WITH_WIDEST(NAME, PARAMETERS, ARGUMENTS)                                     \
  MEMONGER_WIDEST void NAME##Widest PARAMETERS { NAME##Body ARGUMENTS; }                      \
  __attribute__((target("avx2,fma"))) void NAME##Wide PARAMETERS { NAME##Body ARGUMENTS; }    \
  void NAME PARAMETERS {                                                                      \
    if (HasAvx512()) {                                                                        \
      NAME##Widest ARGUMENTS;                                                                 \
    } else if (HasAvx2()) {                                                                   \
      NAME##Wide ARGUMENTS;                                                                   \
    } else {                                                                                  \
      NAME##Body ARGUMENTS;                                                                   \
    }                                                                                         \
  }
#else
#define MEMONGER_INLINE inline
#define MEMONGER_WITH_AVX2(NAME, PARAMETERS, ARGUMENTS) \
  void NAME PARAMETERS { NAME##Body ARGUMENTS; }
#define MEMONGER_WITH_WIDEST MEMONGER_WITH_AVX2
#endif

#endif  // MEMONGER_OPS_WIDE_H_
