/* What a search for maxima needs of a type of number. */
#ifndef MEMONGER_OPS_NUMBERS_H_
#define MEMONGER_OPS_NUMBERS_H_

#include <cstdint>
#include <limits>

#include "./common.h"

namespace memonger {
namespace ops {

template <class T> T Smallest() { return -std::numeric_limits<T>::max(); }
template <> inline half_t Smallest<half_t>() { return half_t::Binary(0xfbff); }

// Integers as wide as the numbers, so that a comparison's lanes select both.
template <class T> struct IndexFor { using type = int32_t; };
template <> struct IndexFor<double> { using type = int64_t; };
template <class T> using Index = typename IndexFor<T>::type;

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_NUMBERS_H_
