// Decisions that stand in the same place of repeated blocks.
#ifndef MEMONGER_CORE_SEARCH_GROUPS_H_
#define MEMONGER_CORE_SEARCH_GROUPS_H_

#include <cstdint>
#include <vector>

#include "core/search/decisions.h"
#include "core/simulator.h"

namespace memonger {

class Groups {
 public:
  Groups(const Simulator& simulator, const Decisions& decisions);

  // Those with the most bytes first.
  const std::vector<std::vector<int>>& all() const { return groups_; }
  // Of each op: the gap behind its last use, the one into the backward ops (-1: none), its bytes.
  int trailing_gap(int op) const { return trailing_gap_[op]; }
  int crossing_gap(int op) const { return crossing_gap_[op]; }
  int64_t bytes_made(int op) const { return bytes_made_[op]; }

 private:
  std::vector<std::vector<int>> groups_;
  std::vector<int> trailing_gap_, crossing_gap_;
  std::vector<int64_t> bytes_made_;
};

}  // namespace memonger

#endif  // MEMONGER_CORE_SEARCH_GROUPS_H_
