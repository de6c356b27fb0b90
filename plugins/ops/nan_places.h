/*
 * Where the NaNs of a ReLU's input were, which one bit an element cannot say.
 *
 * Its gradient is NaN there. The places are remembered beside the mask, by its address: each forward
 * replaces what was remembered for its mask, so the table is empty as long as no input holds a NaN,
 * and looking into it then costs the reading of one number.
 */
#ifndef MEMONGER_OPS_NAN_PLACES_H_
#define MEMONGER_OPS_NAN_PLACES_H_

#include <limits>
#include <memory>
#include <vector>

#include "./lanes.h"

namespace memonger {
namespace ops {

using NanPlaces = std::vector<uint8_t>;  // one bit an element

// Null: there are none.
void SetNanPlaces(const TBlob& mask, std::shared_ptr<const NanPlaces> places);
std::shared_ptr<const NanPlaces> GetNanPlaces(const TBlob& mask);

template <class T>
std::shared_ptr<const NanPlaces> FindNans(const TBlob& array) {
  const T* x = array.dptr<T>();
  auto places = std::make_shared<NanPlaces>(BytesOfBits(array.Size()));
  for (int64_t i = 0; i < static_cast<int64_t>(array.Size()); ++i) {
    if (Single<T>::Nan(x[i])) (*places)[i >> 3] |= 1 << (i & 7);
  }
  return places;
}

template <class T>
void WriteNans(const NanPlaces& places, const TBlob& array) {
  T* x = array.dptr<T>();
  const T nan = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  for (int64_t i = 0; i < static_cast<int64_t>(array.Size()); ++i) {
    if (Bit(places.data(), i)) x[i] = nan;
  }
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_NAN_PLACES_H_
