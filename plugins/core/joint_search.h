// Local search for the cheapest plan of a JointModel within a budget.
//
// Two ways to say what is held. First, as everywhere in this folder: for each value and each gap
// between two stages that may read it, keep it, drop it and keep it again once something has run
// it, or drop it after every run; nodes run on demand (JointDecisions). A portfolio of greedy
// repair, pruning, iterated local search and simulated annealing works on these. Then S itself,
// where a value may also be made before it is needed and be held for part of a gap; annealing at
// low temperature works on that, and evaluates the stages that a move touches. Small problems are
// solved from many short starts; the time left goes to long warm annealing of the better half.
//
// Work is counted in stages evaluated: without the time limit a result depends on problem, seed and
// work alone.
#ifndef MEMONGER_CORE_JOINT_SEARCH_H_
#define MEMONGER_CORE_JOINT_SEARCH_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "joint.h"
#include "random.h"

namespace memonger {

// A plan: what is held when each stage begins, and each stage's variant.
struct JointPlan {
  std::vector<NodeSet> held;  // one more than stages
  std::vector<int> variants;
};

struct JointOutcome {
  int64_t cost = 0;
  int64_t overflow = 0;
  bool fits() const { return overflow == 0; }
};

// A plan with the outcome of each stage, changed a few stages at a time.
class JointState {
 public:
  explicit JointState(const JointModel& model);
  const JointPlan& plan() const { return plan_; }
  const JointOutcome& outcome() const { return total_; }
  const StageOutcome& stage(int t) const { return stages_[t]; }
  const NodeSet& runs(int t) const { return runs_[t]; }
  bool held(int t, int node) const { return plan_.held[t].Has(node); }

  // Changes; Evaluate() brings the outcome up to date, Undo() takes back all since Commit().
  void SetHeld(int t, const NodeSet& held, int64_t size);
  void Toggle(int t, int node);
  void SetVariant(int stage, int variant);
  const JointOutcome& Evaluate();
  void Commit();
  void Undo();
  int64_t work() const { return work_; }

 private:
  struct HeldUndo { int t; NodeSet held; int64_t size; };
  struct StageUndo { int t; StageOutcome outcome; NodeSet runs; };
  void Dirty(int stage);
  void RememberHeld(int t);

  const JointModel& model_;
  JointPlan plan_;
  std::vector<int64_t> sizes_;
  std::vector<StageOutcome> stages_;
  std::vector<NodeSet> runs_;
  JointOutcome total_, before_;
  std::vector<char> dirty_, held_remembered_;
  std::vector<int> dirty_list_;
  std::vector<HeldUndo> held_undo_;
  std::vector<std::pair<int, int>> variant_undo_;
  std::vector<StageUndo> stage_undo_;
  int64_t work_ = 0;
};

// Gaps and variants as items, and the plan that they give.
class JointDecisions {
 public:
  explicit JointDecisions(const JointModel& model);
  int num_items() const { return static_cast<int>(items_.size()); }
  int num_gaps() const { return num_gaps_; }
  int num_values(int item) const { return items_[item].num_values; }
  int Default(int item) const { return items_[item].usual; }
  int Get(int item) const { return values_[item]; }
  void Set(int item, int value) { values_[item] = value; }
  const std::vector<int>& values() const { return values_; }
  void Load(const std::vector<int>& values) { values_ = values; }
  std::vector<int> Defaults() const;
  // Stages between which the decision matters.
  int first_stage(int item) const { return items_[item].first; }
  int last_stage(int item) const { return items_[item].last; }
  // The gap of a value that a stage ends, or is in; -1 where there is none.
  int GapBefore(int node, int stage) const;
  int GapAt(int node, int stage) const;
  // Writes the plan of the decisions into a state.
  void Unroll(JointState* state);

 private:
  struct Item { int owner, first, last, num_values, usual; };
  struct Span { int node, first, last; };  // held from stage first + 1 to last
  void Need(int node, int stage);
  void Open(int node, int stage);

  const JointModel& model_;
  int num_gaps_ = 0;
  std::vector<Item> items_;
  std::vector<int> values_;
  std::vector<int> first_gap_;            // of each node, in items_
  std::vector<int> variant_item_;         // of each stage, or -1
  std::vector<std::vector<int>> readers_;     // nodes that a stage may read, under any variant
  std::vector<std::vector<int>> use_stages_;  // of each node
  // State of one unrolling.
  std::vector<Span> spans_;
  std::vector<int> open_, ran_in_, gap_, running_;
  std::vector<std::vector<int>> begins_, ends_;
};

struct JointOptions {
  uint64_t seed = 1;
  int64_t work_limit = 0;
  double time_limit_s = 40;
  std::function<bool()> stop;  // asked now and then
};

class JointSearch {
 public:
  JointSearch(const JointModel& model, const JointOptions& options);
  // The best plan found; outcome().overflow of it is zero when it fits.
  JointPlan Run();
  const JointOutcome& best() const { return best_; }
  int64_t evaluations() const { return evaluations_; }
  double best_found_s() const { return best_found_s_; }
  bool out_of_time() const { return out_of_time_; }

 private:
  struct Found { JointOutcome outcome; JointPlan plan; };
  double FirstWeight() const;
  double Progress();  // 0 to 1, the larger of work and time
  bool Past(double progress) { return Progress() >= progress; }
  JointOutcome Try();  // of decisions_
  void Take() { state_.Commit(); }
  void Offer(bool from_decisions);
  void Load(const std::vector<int>& values);
  bool Repair(double until);
  void Prune(double until);
  void Perturb();
  void Iterate(double until);
  void ExchangeVariant(const std::function<void(int, int)>& change);
  void ExchangeNeighbours(const std::function<void(int, int)>& change);
  void Start(double polish_heat, double until);
  void Improve(std::vector<Found> found);
  void Anneal(double hot, double cold, double until);
  void Polish(double hot, double cold, double until);
  void ProposeHeld();
  bool KeptOn(int node, int stage) const;
  void ProposeEarlier(int node, int stage);
  void ProposeCarried(int node, int stage);
  void ProposeVariant(int stage);
  void ProposeExchange(int node, int stage);
  void ProposeShift(int stage);
  void ProposeBlock(int stage);
  void ProposeDrop(int node, int stage);
  void Fill(int node, int from, int to, bool held);

  const JointModel& model_;
  JointOptions options_;
  JointState state_;
  JointDecisions decisions_;
  Random random_;
  double weight_ = 0;   // of the overflow, adjusts itself
  int64_t base_cost_ = 0;
  JointOutcome best_;
  JointPlan best_plan_;
  std::vector<int> best_values_;     // decisions of the best plan that came from decisions
  JointOutcome best_decided_;
  JointOutcome best_of_run_;         // since the last start
  JointPlan plan_of_run_;
  bool have_ = false, have_decided_ = false, have_run_ = false;
  int64_t evaluations_ = 0;
  int64_t asked_ = 0;
  double progress_ = 0, best_found_s_ = 0;
  bool out_of_time_ = false, stopped_ = false;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace memonger

#endif  // MEMONGER_CORE_JOINT_SEARCH_H_
