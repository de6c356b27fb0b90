// What has to fit the budget, and the best decisions so far.
//
// That is the peak of the live bytes, or, measured with a meter, the pool of a storage assignment.
// Exact pools take long; while the pool is what has to fit, an estimate leads the search, corrected
// by what exact pools it has seen.
#ifndef MEMONGER_CORE_SEARCH_TARGET_H_
#define MEMONGER_CORE_SEARCH_TARGET_H_

#include <cstdint>
#include <limits>

#include "core/layers.h"
#include "core/pool.h"
#include "core/random.h"
#include "core/search/decisions.h"
#include "core/simulator.h"

namespace memonger {

class Target {
 public:
  // `meter` may be null: live bytes.
  Target(Simulator* simulator, Decisions* decisions, PoolMeter* meter, Random* random,
         int64_t budget_bytes);

  Outcome Evaluate(double cost_limit = std::numeric_limits<double>::infinity());
  bool Feasible(const Outcome& o) const { return o.valid && o.overflow <= 0; }
  // Where something must be dropped; of the last evaluation.
  int WorstOp(const Outcome& outcome);

  // The current decisions, whose outcome this is.
  Solution Current(const Outcome& outcome) const;
  // Keeps the current decisions where they are the best so far.
  void Offer(const Outcome& outcome);
  const Solution& best() const { return best_; }
  void set_best(const Solution& best) { best_ = best; }
  void Forget() { best_ = Solution(); }

  // Time of the unplanned step; to be told before anything else is asked.
  void set_base_cost(double cost) { base_cost_ = cost; }
  double base_cost() const { return base_cost_; }
  // What one recomputation of the best costs on average: the scale of all temperatures.
  double Unit() const;

  int64_t budget_bytes() const { return budget_bytes_; }
  void set_budget(int64_t bytes);
  // Of the live bytes alone; what an exact pool is compared with stays.
  void set_live_budget(int64_t bytes) { simulator_->set_budget(bytes); }
  // The pool is what has to fit from here on, not the live bytes.
  void MeasurePool() { pool_mode_ = true; }
  bool measures_pool() const { return pool_mode_; }
  bool has_meter() const { return meter_ != nullptr; }
  // Whether what has to fit are whole buffers; arenas take little more than the live bytes.
  bool has_whole_buffers() const {
    return meter_ && meter_->kind() != storage::Kind::kArena &&
           meter_->kind() != storage::Kind::kLive;
  }
  // Exact pool of the current decisions with the bytes outside it, or more, but no more than
  // `wanted`, where that saves time. 0 without a meter; -1 where the decisions cannot run.
  int64_t ExactPool(int64_t wanted = 0);
  // Counts the work of one exact pool.
  void CountExactPool();

  // For the least memory. Whatever fits is the smallest so far: it is kept, and the budget falls
  // below it, by this share of it.
  void set_step_down(double share) { step_down_ = share; }
  void KeepSmallest(const Outcome& outcome);
  void LowerBudget();

 private:
  void OfferPool(const Outcome& outcome);
  void Keep(const Outcome& outcome);

  Simulator* simulator_;
  Decisions* decisions_;
  PoolMeter* meter_;
  LayerMeter layers_;
  Random* random_;
  int64_t budget_bytes_;
  bool pool_mode_ = false;
  double slack_ = 1;      // of the exact pool to the estimated one
  double step_down_ = 0;  // of the budget below the smallest plan, as a share of it
  double base_cost_ = 0;
  Solution best_;
  int best_steps_ = 0;  // of best_
  double least_overflow_ = 0;
};

}  // namespace memonger

#endif  // MEMONGER_CORE_SEARCH_TARGET_H_
