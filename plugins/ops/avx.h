/*
 * 32 bytes of floats or doubles, and the numbers of elements beside them, with AVX2: what max
 * pooling of whole maps is made of. For functions with MEMONGER_AVX2 alone, on processors that have
 * it.
 */
#ifndef MEMONGER_OPS_AVX_H_
#define MEMONGER_OPS_AVX_H_

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "./numbers.h"
#include "./wide.h"

namespace memonger {
namespace ops {

// Number(n) has the integer n in each lane, Numbers(n, step) n, n + step and so on; Add adds such
// integers, Before compares them, Within(v, end) tells where they are at least 0 and below end.
// Columns: lane i of vector k is x[places[i] + k]; from each place kColumns numbers are read. Even
// and Odd have every second number of two vectors in order. LoadSome reads `there` numbers, the
// other lanes are `rest`; PutSome writes no more than `there`. Transpose: lane i of vector k becomes
// lane k of vector i. Permute: 32 bits at place i come from place from[i].
template <class T> struct Avx;

template <>
struct Avx<float> {
  static constexpr int kWidth = 8;
  using V = __m256;
  MEMONGER_AVX2 static V All(float value) { return _mm256_set1_ps(value); }
  MEMONGER_AVX2 static V Load(const float* from) { return _mm256_loadu_ps(from); }
  MEMONGER_AVX2 static void Put(float* to, V v) { _mm256_storeu_ps(to, v); }
  MEMONGER_AVX2 static V Above(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
  MEMONGER_AVX2 static V Equal(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
  MEMONGER_AVX2 static V Max(V a, V b) { return _mm256_max_ps(a, b); }  // b where one is NaN
  MEMONGER_AVX2 static V Pick(V mask, V yes, V no) { return _mm256_blendv_ps(no, yes, mask); }
  MEMONGER_AVX2 static V Number(int n) { return _mm256_castsi256_ps(_mm256_set1_epi32(n)); }
  MEMONGER_AVX2 static V Add(V a, V b) {
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
  }
  MEMONGER_AVX2 static __m256i First(int there) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(there), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  MEMONGER_AVX2 static V LoadSome(const float* from, int there, V rest) {
    const __m256i mask = First(there);
    return Pick(_mm256_castsi256_ps(mask), _mm256_maskload_ps(from, mask), rest);
  }
  MEMONGER_AVX2 static void PutSome(float* to, int there, V v) {
    _mm256_maskstore_ps(to, First(there), v);
  }
  MEMONGER_AVX2 static V Either(V a, V b) { return _mm256_or_ps(a, b); }
  MEMONGER_AVX2 static V Both(V a, V b) { return _mm256_and_ps(a, b); }
  MEMONGER_AVX2 static V Before(V a, V b) {
    return _mm256_castsi256_ps(
        _mm256_cmpgt_epi32(_mm256_castps_si256(b), _mm256_castps_si256(a)));
  }
  MEMONGER_AVX2 static V Even(V a, V b) {
    return InOrder(_mm256_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)));
  }
  MEMONGER_AVX2 static V Odd(V a, V b) {
    return InOrder(_mm256_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1)));
  }
  // A shuffle works on each half by itself.
  MEMONGER_AVX2 static V InOrder(V pairs) {
    return _mm256_castpd_ps(
        _mm256_permute4x64_pd(_mm256_castps_pd(pairs), _MM_SHUFFLE(3, 1, 2, 0)));
  }
  MEMONGER_AVX2 static V Lanes(const Index<float>* from) {
    return Load(reinterpret_cast<const float*>(from));
  }
  MEMONGER_AVX2 static V Permute(V v, const int32_t* from) {
    return _mm256_permutevar8x32_ps(v, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  MEMONGER_AVX2 static void Transpose(V* v) {
    V pair[8];  // rows 2k and 2k + 1: columns 0, 1, then 2, 3 of each half
    for (int k = 0; k < 8; k += 2) {
      pair[k] = _mm256_unpacklo_ps(v[k], v[k + 1]);
      pair[k + 1] = _mm256_unpackhi_ps(v[k], v[k + 1]);
    }
    V four[8];  // rows 4k to 4k + 3: one column of each half
    for (int k = 0; k < 8; k += 4) {
      for (int i = 0; i < 2; ++i) {
        four[k + 2 * i] = _mm256_shuffle_ps(pair[k + i], pair[k + i + 2],
                                            _MM_SHUFFLE(1, 0, 1, 0));
        four[k + 2 * i + 1] = _mm256_shuffle_ps(pair[k + i], pair[k + i + 2],
                                                _MM_SHUFFLE(3, 2, 3, 2));
      }
    }
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_permute2f128_ps(four[i], four[i + 4], 0x20);
      v[i + 4] = _mm256_permute2f128_ps(four[i], four[i + 4], 0x31);
    }
  }
  MEMONGER_AVX2 static V Numbers(int first, int step) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return Add(Number(first),
               _mm256_castsi256_ps(_mm256_mullo_epi32(lanes, _mm256_set1_epi32(step))));
  }
  MEMONGER_AVX2 static V Within(V number, int end) {
    const __m256i n = _mm256_castps_si256(number);
    return _mm256_castsi256_ps(
        _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_setzero_si256(), n),
                            _mm256_cmpgt_epi32(_mm256_set1_epi32(end), n)));
  }
  static constexpr int kColumns = 4;
  MEMONGER_AVX2 static V Halves(const float* low, const float* high) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
  }
  MEMONGER_AVX2 static void Columns(const float* x, const int32_t* places, V* columns) {
    V row[4], pair[4];
    for (int k = 0; k < 4; ++k) row[k] = Halves(x + places[k], x + places[k + 4]);
    for (int k = 0; k < 2; ++k) {
      pair[k] = _mm256_unpacklo_ps(row[2 * k], row[2 * k + 1]);
      pair[k + 2] = _mm256_unpackhi_ps(row[2 * k], row[2 * k + 1]);
    }
    for (int k = 0; k < 2; ++k) {
      columns[2 * k] = _mm256_shuffle_ps(pair[2 * k], pair[2 * k + 1], _MM_SHUFFLE(1, 0, 1, 0));
      columns[2 * k + 1] = _mm256_shuffle_ps(pair[2 * k], pair[2 * k + 1], _MM_SHUFFLE(3, 2, 3, 2));
    }
  }
  MEMONGER_AVX2 static bool AnyNegative(V number) { return _mm256_movemask_ps(number) != 0; }
};

template <>
struct Avx<double> {
  static constexpr int kWidth = 4;
  using V = __m256d;
  MEMONGER_AVX2 static V All(double value) { return _mm256_set1_pd(value); }
  MEMONGER_AVX2 static V Load(const double* from) { return _mm256_loadu_pd(from); }
  MEMONGER_AVX2 static void Put(double* to, V v) { _mm256_storeu_pd(to, v); }
  MEMONGER_AVX2 static V Above(V a, V b) { return _mm256_cmp_pd(a, b, _CMP_GT_OQ); }
  MEMONGER_AVX2 static V Equal(V a, V b) { return _mm256_cmp_pd(a, b, _CMP_EQ_OQ); }
  MEMONGER_AVX2 static V Max(V a, V b) { return _mm256_max_pd(a, b); }
  MEMONGER_AVX2 static V Pick(V mask, V yes, V no) { return _mm256_blendv_pd(no, yes, mask); }
  MEMONGER_AVX2 static V Number(int n) { return _mm256_castsi256_pd(_mm256_set1_epi64x(n)); }
  MEMONGER_AVX2 static V Add(V a, V b) {
    return _mm256_castsi256_pd(
        _mm256_add_epi64(_mm256_castpd_si256(a), _mm256_castpd_si256(b)));
  }
  MEMONGER_AVX2 static __m256i First(int there) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(there), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  MEMONGER_AVX2 static V LoadSome(const double* from, int there, V rest) {
    const __m256i mask = First(there);
    return Pick(_mm256_castsi256_pd(mask), _mm256_maskload_pd(from, mask), rest);
  }
  MEMONGER_AVX2 static void PutSome(double* to, int there, V v) {
    _mm256_maskstore_pd(to, First(there), v);
  }
  MEMONGER_AVX2 static V Either(V a, V b) { return _mm256_or_pd(a, b); }
  MEMONGER_AVX2 static V Both(V a, V b) { return _mm256_and_pd(a, b); }
  MEMONGER_AVX2 static V Before(V a, V b) {
    return _mm256_castsi256_pd(
        _mm256_cmpgt_epi64(_mm256_castpd_si256(b), _mm256_castpd_si256(a)));
  }
  MEMONGER_AVX2 static V Even(V a, V b) { return InOrder(_mm256_unpacklo_pd(a, b)); }
  MEMONGER_AVX2 static V Odd(V a, V b) { return InOrder(_mm256_unpackhi_pd(a, b)); }
  MEMONGER_AVX2 static V InOrder(V pairs) {
    return _mm256_permute4x64_pd(pairs, _MM_SHUFFLE(3, 1, 2, 0));
  }
  MEMONGER_AVX2 static V Lanes(const Index<double>* from) {
    return Load(reinterpret_cast<const double*>(from));
  }
  MEMONGER_AVX2 static V Permute(V v, const int32_t* from) {
    return _mm256_castps_pd(Avx<float>::Permute(_mm256_castpd_ps(v), from));
  }
  MEMONGER_AVX2 static void Transpose(V* v) {
    V pair[4];
    for (int k = 0; k < 4; k += 2) {
      pair[k] = _mm256_unpacklo_pd(v[k], v[k + 1]);
      pair[k + 1] = _mm256_unpackhi_pd(v[k], v[k + 1]);
    }
    for (int i = 0; i < 2; ++i) {
      v[i] = _mm256_permute2f128_pd(pair[i], pair[i + 2], 0x20);
      v[i + 2] = _mm256_permute2f128_pd(pair[i], pair[i + 2], 0x31);
    }
  }
  MEMONGER_AVX2 static V Numbers(int first, int step) {
    const __m256i lanes = _mm256_setr_epi64x(0, 1, 2, 3);
    return Add(Number(first),
               _mm256_castsi256_pd(_mm256_mul_epi32(lanes, _mm256_set1_epi64x(step))));
  }
  MEMONGER_AVX2 static V Within(V number, int end) {
    const __m256i n = _mm256_castpd_si256(number);
    return _mm256_castsi256_pd(
        _mm256_andnot_si256(_mm256_cmpgt_epi64(_mm256_setzero_si256(), n),
                            _mm256_cmpgt_epi64(_mm256_set1_epi64x(end), n)));
  }
  static constexpr int kColumns = 2;
  MEMONGER_AVX2 static V Halves(const double* low, const double* high) {
    return _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(low)), _mm_loadu_pd(high), 1);
  }
  MEMONGER_AVX2 static void Columns(const double* x, const int32_t* places, V* columns) {
    const V even = Halves(x + places[0], x + places[2]), odd = Halves(x + places[1], x + places[3]);
    columns[0] = _mm256_unpacklo_pd(even, odd);
    columns[1] = _mm256_unpackhi_pd(even, odd);
  }
  MEMONGER_AVX2 static bool AnyNegative(V number) { return _mm256_movemask_pd(number) != 0; }
};

// The largest items so far and their numbers; `its` are those of `item`, whose NaN are passed over.
template <class T>
MEMONGER_AVX2 inline void TakeAbove(typename Avx<T>::V item, typename Avx<T>::V its,
                                    typename Avx<T>::V* value, typename Avx<T>::V* number) {
  using L = Avx<T>;
  const typename L::V above = L::Above(item, *value);
  *value = L::Max(item, *value);  // where item is NaN the value stays
  *number = L::Pick(above, its, *number);
}

// The same where numbers do not come in order: of equal items that with the smallest. No item is
// NaN; equal ones may be zeros with different signs.
template <class T>
MEMONGER_AVX2 inline void TakeFirst(typename Avx<T>::V item, typename Avx<T>::V its,
                                    typename Avx<T>::V* value, typename Avx<T>::V* number) {
  using L = Avx<T>;
  const typename L::V first = L::Both(L::Equal(item, *value), L::Before(its, *number));
  const typename L::V taken = L::Either(L::Above(item, *value), first);
  *value = L::Pick(taken, item, *value);
  *number = L::Pick(taken, its, *number);
}

// The integers of the lanes of kVectors vectors (1 or 4), as they are, or narrower and in order.
template <int kVectors>
MEMONGER_AVX2 inline void PutNumbers(const __m256* number, float* to) {
  for (int v = 0; v < kVectors; ++v) Avx<float>::Put(to + 8 * v, number[v]);
}

template <int kVectors>
MEMONGER_AVX2 inline void PutNumbers(const __m256d* number, double* to) {
  for (int v = 0; v < kVectors; ++v) Avx<double>::Put(to + 4 * v, number[v]);
}

template <int kVectors>
MEMONGER_AVX2 inline void PutNumbers(const __m256* number, int32_t* to) {
  for (int v = 0; v < kVectors; ++v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8 * v), _mm256_castps_si256(number[v]));
  }
}

template <int kVectors>
MEMONGER_AVX2 inline void PutNumbers(const __m256* number, int8_t* to) {
  __m256i pair[2];
  for (int i = 0; i < 2; ++i) {
    pair[i] = _mm256_packs_epi32(_mm256_castps_si256(number[2 * i % kVectors]),
                                 _mm256_castps_si256(number[(2 * i + 1) % kVectors]));
  }
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(pair[0], pair[1]),
                                                    _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  std::memcpy(to, &bytes, 8 * kVectors);
}

// Two vectors of 64-bit integers are one of 32 bits; what there is twice is not kept.
template <int kVectors, class N>
MEMONGER_AVX2 inline void PutNumbers(const __m256d* number, N* to) {
  constexpr int kHalf = (kVectors + 1) / 2;
  __m256 half[kHalf];
  for (int i = 0; i < kHalf; ++i) {
    half[i] = Avx<float>::Even(_mm256_castpd_ps(number[2 * i]),
                               _mm256_castpd_ps(number[(2 * i + 1) % kVectors]));
  }
  N all[8 * kHalf];
  PutNumbers<kHalf>(half, all);
  std::memcpy(to, all, 4 * kVectors * sizeof(N));
}

// The first `count` lanes.
template <class T, class N>
MEMONGER_AVX2 inline void PutOutputs(typename Avx<T>::V value, typename Avx<T>::V number, int count,
                                     T* values, N* numbers) {
  if (count == Avx<T>::kWidth) {
    Avx<T>::Put(values, value);
    PutNumbers<1>(&number, numbers);
    return;
  }
  N all[Avx<T>::kWidth];
  PutNumbers<1>(&number, all);
  Avx<T>::PutSome(values, count, value);
  std::memcpy(numbers, all, count * sizeof(N));
}

// The largest of the lanes, of equal ones that with the smallest number.
template <class T, class N>
MEMONGER_AVX2 inline void PutLargest(typename Avx<T>::V value, typename Avx<T>::V number, T* to,
                                     N* its_number) {
  using L = Avx<T>;
  for (int by = 4; by * L::kWidth >= 8; by /= 2) {  // every lane meets one that is `by` ints away
    int32_t from[8];
    for (int i = 0; i < 8; ++i) from[i] = i ^ by;
    TakeFirst<T>(L::Permute(value, from), L::Permute(number, from), &value, &number);
  }
  N all[L::kWidth];
  PutNumbers<1>(&number, all);
  L::PutSome(to, 1, value);
  *its_number = all[0];
}

}  // namespace ops
}  // namespace memonger
#endif

#endif  // MEMONGER_OPS_AVX_H_
