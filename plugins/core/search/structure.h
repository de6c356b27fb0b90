// What of a problem's shape the moves follow: like ops, and values that lead into backward.
#ifndef MEMONGER_CORE_SEARCH_STRUCTURE_H_
#define MEMONGER_CORE_SEARCH_STRUCTURE_H_

#include <cstdint>
#include <vector>

#include "core/search/decisions.h"
#include "core/simulator.h"

namespace memonger {

class Structure {
 public:
  Structure(const Simulator& simulator, const Decisions& decisions);

  // Gaps that lead into the backward ops, in order of ops.
  const std::vector<int>& crossing() const { return crossing_; }
  // Gaps of ops that do the same work (same time and bytes) in repeated blocks, in order.
  const std::vector<int>& family(int gap) const { return families_[family_of_[gap]]; }
  int place_in_family(int gap) const { return place_in_family_[gap]; }
  // Of each op: time to make a byte.
  const std::vector<double>& seconds_per_byte() const { return seconds_per_byte_; }
  // Variants that do not shut each other out, those that save the most time first.
  const std::vector<int>& friendly_variants() const { return friendly_variants_; }
  // What a variant adds to the time of the step.
  double TimeAdded(int variant) const;

 private:
  void FindFamilies();
  void FindFriendlyVariants();

  const Simulator& simulator_;
  const Decisions& decisions_;
  std::vector<int> crossing_;
  std::vector<std::vector<int>> families_;
  std::vector<int> family_of_, place_in_family_;  // of each gap
  std::vector<double> seconds_per_byte_;
  std::vector<int> friendly_variants_;
};

}  // namespace memonger

#endif  // MEMONGER_CORE_SEARCH_STRUCTURE_H_
