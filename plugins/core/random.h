#ifndef MEMONGER_CORE_RANDOM_H_
#define MEMONGER_CORE_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace memonger {

// For storage planning: Marsaglia's xorshift with 32 bits.
class Xorshift32 {
 public:
  uint32_t Below(uint32_t limit) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 17;
    state_ ^= state_ << 5;
    return static_cast<uint32_t>((static_cast<uint64_t>(state_) * limit) >> 32);
  }

 private:
  uint32_t state_ = 2463534242u;
};

// For searches: small, fast and the same everywhere (xorshift64*, Vigna 2016).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 0x1234567ull) {
    for (int i = 0; i < 8; ++i) Next();
  }
  uint64_t Next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 2685821657736338717ull;
  }
  int Below(int limit) { return static_cast<int>((Next() >> 33) % static_cast<uint64_t>(limit)); }
  double Unit() { return (static_cast<double>(Next() >> 11) + 0.5) / 9007199254740992.0; }
  bool OneIn(int n) { return Below(n) == 0; }

 private:
  uint64_t state_;
};

// Fisher and Yates.
inline void Shuffle(Random* random, std::vector<int>* values) {
  for (std::size_t i = values->size(); i > 1; --i) {
    std::swap((*values)[i - 1], (*values)[random->Below(static_cast<int>(i))]);
  }
}

}  // namespace memonger

#endif  // MEMONGER_CORE_RANDOM_H_
