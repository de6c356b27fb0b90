// Blocks at offsets of one buffer: the "skyline" placement.
//
// A block is a rectangle: its life on the axis of steps, its bytes upwards. The skyline is the top
// of what has been placed, cut into segments of one height. Again and again the lowest segment gets
// a block whose whole life lies in it, the first such block of a given order; where there is none
// the segment is lifted to its lower neighbour (best fit: Burke, Kendall and Whitwell 2004, "A new
// placement heuristic for the orthogonal stock-cutting problem", Operations Research 52; for
// memory: Sekiyama et al. 2018, "Profile-guided memory optimization for deep neural networks").
// What is lost to lifting is all that is lost, so good orders come within a thousandth of the peak
// of live bytes.
#ifndef MEMONGER_CORE_MEMORY_SKYLINE_H_
#define MEMONGER_CORE_MEMORY_SKYLINE_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace memonger {
namespace storage {

class Skyline {
 public:
  // Inclusive steps; bytes are multiples of the alignment.
  void Add(int32_t start, int32_t end, int64_t bytes);

  // The largest sum of living blocks: nothing is smaller.
  int64_t Bound() const;

  // Four orders, then changes of the best one, at most `tries`, until no more than `enough` bytes
  // are taken. Returns the bytes; offsets by block.
  int64_t Search(int64_t enough, int64_t tries, std::vector<int64_t>* offsets);

  // How many times Search laid a block down.
  int64_t placed() const { return placed_; }

 private:
  using Lowest = std::pair<int64_t, int32_t>;  // height and first step of a segment

  int64_t Place(const std::vector<int32_t>& order, int64_t limit);
  int32_t FirstFit(int32_t first, int32_t last) const;
  void Push(int32_t first);
  void Fill(int32_t first, int32_t block);
  void Lift(int32_t first);
  void Join(int32_t first);

  std::vector<int32_t> start_, end_;
  std::vector<int64_t> bytes_;
  int32_t num_steps_ = 0;
  int64_t placed_ = 0;
  // Blocks in order of their first step, and for each step where those that start there begin.
  std::vector<int32_t> by_start_, starts_at_;
  // The blocks to be placed, by rank: a list, and each block's rank.
  std::vector<int32_t> order_, next_, previous_, rank_;
  // Segments by first step: last step (-1: none begins here), the segment before, height.
  std::vector<int32_t> last_, before_;
  std::vector<int64_t> height_;
  std::vector<Lowest> lowest_;  // a heap, with entries of segments that are gone
  std::vector<int64_t> offset_;
};

}  // namespace storage
}  // namespace memonger

#endif  // MEMONGER_CORE_MEMORY_SKYLINE_H_
