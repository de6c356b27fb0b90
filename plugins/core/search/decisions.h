// The decisions of a search: what happens in each gap, and which variants are in use.
//
// Decisions are numbered: gaps first, then variants. A move sets some of them and looks at what the
// step takes; then it commits or undoes them.
#ifndef MEMONGER_CORE_SEARCH_DECISIONS_H_
#define MEMONGER_CORE_SEARCH_DECISIONS_H_

#include <utility>
#include <vector>

#include "core/search/options.h"
#include "core/simulator.h"

namespace memonger {

class Decisions {
 public:
  // All at their default, whatever the simulator served before.
  explicit Decisions(Simulator* simulator);

  int num_gaps() const { return num_gaps_; }
  int num_variants() const { return num_variants_; }
  int size() const { return num_gaps_ + num_variants_; }
  bool is_gap(int decision) const { return decision < num_gaps_; }
  int num_values(int decision) const { return is_gap(decision) ? 3 : 2; }
  int variant(int number) const { return num_gaps_ + number; }

  // A Choice, or whether a variant is in use.
  int Get(int decision) const;
  int Default(int decision) const;
  bool Allowed(int decision, int value) const;
  // Nothing happens where the value is not allowed.
  void Set(int decision, int value);
  void SetAdvance(int gap, int op);

  bool has_changes() const { return !undo_.empty(); }
  void Commit();
  void Undo();

  // Those that are not at their default, in no order.
  const std::vector<int>& off_default() const { return off_default_; }
  bool is_off_default(int decision) const { return place_off_default_[decision] >= 0; }
  std::vector<int> SortedOffDefault() const;

  void Load(const Solution& solution);
  void LoadDefaults();
  Solution Snapshot() const;

 private:
  Simulator* simulator_;
  int num_gaps_, num_variants_;
  std::vector<std::pair<int, int>> undo_;          // decision, value before
  std::vector<std::pair<int, int>> advance_undo_;  // gap, op before
  std::vector<int> off_default_;
  std::vector<int> place_off_default_;  // of each decision in off_default_, or -1
};

}  // namespace memonger

#endif  // MEMONGER_CORE_SEARCH_DECISIONS_H_
