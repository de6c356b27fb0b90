// Local search for the cheapest decisions within a budget: restarts of greedy repair, pruning,
// iterated local search and simulated annealing, all on exact evaluations.
//
// Work is counted in simulated steps, not in seconds, so that a result depends on the problem,
// the seed and the work limit alone, unless the wall clock is behind: once a fifth of the time
// limit is over, the work due is at least that of a machine which needs all of the time.
#ifndef MEMONGER_CORE_SEARCH_H_
#define MEMONGER_CORE_SEARCH_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "core/layers.h"
#include "core/pool.h"
#include "core/random.h"
#include "core/simulator.h"

namespace memonger {

// Receives cost and bytes of the best so far (negative without one); true stops.
using PollFunction = std::function<bool(double, int64_t)>;

struct Solution {
  bool known = false;         // false: nothing yet; a graph may have no gaps at all
  std::vector<char> choices;  // of each gap
  std::vector<int> advance;   // of each gap
  std::vector<char> variants;
  double cost = 0;
  int64_t peak = 0;
  int64_t pool = -1;  // with the bytes outside it, where there is a pool meter
  bool feasible = false;
};

// What a search can do without, to measure what each is worth (`memonger bench ablation`).
enum Part {
  kSeeds = 1,
  kGroups = 2,
  kRepairs = 4,  // iterated repair and pruning
  kAnnealing = 8,
  kStretches = 16,  // moves of annealing
  kShifts = 32,
  kBlocks = 64,
};

struct SearchOptions {
  int64_t budget_bytes = 0;  // of the pool and of workspace and objects outside it
  uint64_t seed = 1;
  int64_t work_limit = 0;  // simulated steps
  double time_limit_s = 10;
  bool crossover = false;  // a population of plans, in place of one that is annealed
  bool smallest = false;   // the least memory at any cost in time, from `warm` on
  double heat = 0;         // where annealing starts, in units of Unit(); 0: as the graph asks for
  int64_t without = 0;     // bits of Part
  Solution warm;           // decisions to start from
};

enum class StopReason { kFinished, kTimeLimit, kInterrupted };

class Search {
 public:
  // Without a meter the peak of live bytes is what has to fit.
  Search(Simulator* simulator, const SearchOptions& options, PoolMeter* meter, PollFunction poll);

  // Runs all restarts. The result is feasible, or the one with the least overflow.
  Solution Run();
  StopReason stop_reason() const {
    return stop_ == StopReason::kFinished && hurried_ ? StopReason::kTimeLimit : stop_;
  }

 private:
  struct Temperature {
    double start, end;
  };  // in units of Unit()

  // Decisions: gaps, then variants.
  int num_decisions() const { return num_gaps_ + num_variants_; }
  bool is_gap(int decision) const { return decision < num_gaps_; }
  int num_values(int decision) const { return is_gap(decision) ? 3 : 2; }
  int Get(int decision) const;
  void Set(int decision, int value);  // remembered in undo_
  void SetAdvance(int gap, int op);
  void Undo();
  void Commit() {
    undo_.clear();
    advance_undo_.clear();
  }
  int Default(int decision) const;
  bool Allowed(int decision, int value) const;

  Solution Snapshot(const Outcome& outcome);
  void Load(const Solution& solution);
  void LoadDefaults();

  Outcome Evaluate(double cost_limit);
  Outcome Evaluate();
  // Where something must be dropped; of the last evaluation.
  int WorstOp(const Outcome& outcome);
  // The clock, the caller, or the end of a phase's share of the time says stop.
  bool Stopped();
  // Work so far, or what would be due by the clock on a machine too slow for the work limit.
  int64_t Spent() const { return std::max(simulator_->work(), due_by_clock_); }
  bool Has(Part part) const { return !(options_.without & part); }
  bool OutOf(int64_t work_end) { return Stopped() || Spent() >= work_end; }
  bool Feasible(const Outcome& o) const { return o.valid && o.overflow <= 0; }
  // Keeps the current decisions when they are the best so far for the live budget.
  void Offer(const Outcome& outcome);

  // repair.cc
  bool Repair(Outcome* current, int64_t work_end);
  void Prune(Outcome* current, int64_t work_end);
  void Perturb();
  void Iterate(int64_t work_end);
  // swap_moves.cc
  void SwapMoves(Outcome* current, int64_t work_end);
  bool TakeBackTwo(int gap, Outcome* current, int64_t work_end);
  // crossover.cc
  void TakeStretch(const Solution& giver);
  void Crossover(int64_t work_end);
  // anneal.cc
  double Unit() const;
  void Anneal(Outcome current, Temperature temperature, int64_t work_end);
  int PickDecision();
  void ProposeMove(const Outcome& current);
  void ProposeBlock();
  int Length(int most);
  void ProposeStretch();
  void ProposeShift();
  // seeds.cc
  // `frugal`: those that take the least memory, and much time.
  void TrySeeds(bool frugal, int64_t work_end);
  void SetAllVariants(double most_added = std::numeric_limits<double>::infinity());
  void LoadCheapSeed(double time_per_byte, int segments, double transient, bool all_variants);
  // symmetry_groups.cc
  void FindGroups();
  // What to keep for making a dropped value again.
  enum Basis { kNothing, kInputs, kLittleInputs };
  struct Way {
    int value;  // a Choice, or whether a variant is in use
    Basis basis;
  };
  void Drop(int decision, Way way);
  void KeepBasis(int op, int value, int64_t most_bytes, int depth);
  bool RepairGroups(Outcome* current, bool variants, int64_t work_end);
  void PruneGroups(Outcome* current, int64_t work_end);
  void FitGroups(Outcome* current, bool variants, int64_t repair_end, int64_t work_end);
  // restarts.cc
  void SearchLive(int64_t work_end);
  void SearchPool(const Solution& warm, int64_t work_end);
  void SearchShrinking(int64_t work_end);
  void SearchSmallest(int64_t work_end);
  void KeepSmallest(const Outcome& outcome);
  void LowerBudget();
  void OfferPool(const Outcome& outcome);

  Simulator* simulator_;
  SearchOptions options_;
  PoolMeter* meter_;
  LayerMeter layers_;
  PollFunction poll_;
  Random random_;
  int num_gaps_, num_variants_;
  std::vector<std::pair<int, int>> undo_;  // decision, value before
  std::vector<std::pair<int, int>> advance_undo_;  // gap, op before
  std::vector<int> changed_;                // decisions that are not at their default, in no order
  std::vector<int> changed_place_;          // of each decision in changed_, or -1
  std::vector<int> crossing_;               // gaps that lead into the backward ops, in order of ops
  std::vector<std::vector<int>> families_;  // gaps of like ops, in order
  std::vector<int> family_of_;              // of each gap
  std::vector<int> place_in_family_;
  std::vector<std::vector<int>> groups_;  // decisions at the same place of repeated blocks
  // Of each op: the gap behind its last use, the one into the backward ops (-1: none), its bytes.
  std::vector<int> trailing_gap_, crossing_gap_;
  std::vector<int64_t> bytes_made_;
  double base_cost_ = 0;
  std::vector<int> friendly_variants_;    // those of SetAllVariants()
  std::vector<double> seconds_per_byte_;  // of each op: time to make a byte
  bool pool_mode_ = false;                // what has to fit is the pool, not the live bytes
  double slack_ = 1;                      // of the exact pool to the estimated one
  double step_down_ = 0;                  // of the budget below the smallest plan, as a share of it
  double weight_ = 0;                     // of the overflow, adjusts itself
  Solution best_;
  int best_steps_ = 0;  // of best_
  double least_overflow_ = 0;
  StopReason stop_ = StopReason::kFinished;
  bool paused_ = false;
  double pause_at_s_ = std::numeric_limits<double>::infinity();
  bool hurried_ = false;  // the clock, not the work, decided when a search ended
  int64_t next_poll_ = 0;
  int64_t work_begin_ = 0, due_by_clock_ = 0;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace memonger

#endif  // MEMONGER_CORE_SEARCH_H_
