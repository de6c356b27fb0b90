// From decisions to steps, and from steps to time and the peak of live bytes.
//
// A decision belongs to an op and the gap between two consecutive uses of its value (a use is an
// op of the unplanned step that reads it; gap 0 lies before the first use, the last one behind the
// last use): keep the value, drop it and keep it again once something has recomputed it, or drop
// it after every op. Values are recomputed on demand, right before the first op that needs them.
// A gap may also name an op. A value dropped after every op is kept again from there on, once
// something has recomputed it: a stretch that is run again for what follows it, and later for
// itself, need not be whole in memory twice. Where the graph allows recomputation anywhere, the
// value is instead recomputed in advance of the op. Bytes count from the step that makes a value to the last step that
// reads that instance, so keeping a value that nobody reads again costs nothing.
//
// One evaluation costs O(steps + reads). The order of steps is that of memonger.graph.schedule.expand.
#ifndef MEMONGER_CORE_SIMULATOR_H_
#define MEMONGER_CORE_SIMULATOR_H_

#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "core/problem.h"

namespace memonger {

enum Choice : char { kKeep = 0, kDropThenRetain = 1, kDropTransient = 2 };

struct Gap {
  int op;
  int index;      // which gap of the op
  int begin;      // op after which it starts
  int end;        // op that uses the value next; number of ops for the last gap
  bool trailing;  // behind the last use
};

struct Outcome {
  bool valid = false;  // false: something was needed that must not run again, or too many steps
  double cost = 0;
  int64_t peak = 0;     // live bytes and workspace at the worst step
  double overflow = 0;  // bytes above the budget, summed over the steps
  int peak_op = 0;      // op of the unplanned step at or before which the worst step runs
};

// What a schedule needs to be written down.
struct Trace {
  std::vector<int> ops;            // op of each step
  std::vector<int> implementations;
  std::vector<int> clones;         // number of the run: 0 the first
  std::vector<int> source_begin;   // into sources, one more than steps
  std::vector<int> sources;        // for each input position the step that made it, or -1
  // (op, consumer op, consumer clone, clone): who reads which run, where it is not run 1.
  std::vector<std::tuple<int, int, int, int>> readers;
};

class Simulator {
 public:
  explicit Simulator(const Problem& problem);

  const Problem& problem() const { return problem_; }
  const std::vector<Gap>& gaps() const { return gaps_; }
  // First backward op; the number of ops when there is none.
  int first_backward() const { return first_backward_; }
  int num_ops() const { return static_cast<int>(problem_.ops.size()); }

  // Decisions. Gaps are named by their position in gaps().
  Choice choice(int gap) const { return static_cast<Choice>(choices_[slot_of_gap_[gap]]); }
  void set_choice(int gap, Choice choice) {
    choices_[slot_of_gap_[gap]] = choice;
    HoldFrom(gap);
  }
  Choice default_choice(int gap) const { return gaps_[gap].trailing ? kDropTransient : kKeep; }
  // The op that the gap names; -1 for none.
  int advance(int gap) const { return advance_[gap]; }
  void set_advance(int gap, int op);
  bool variant_on(int variant) const { return variant_on_[variant]; }
  void set_variant(int variant, bool on);

  // How an op runs, and who makes a tensor (-1: no op), under the variants in use.
  const Implementation& active(int op) const {
    return problem_.ops[op].implementations[implementation_[op]];
  }
  int producer(int tensor) const { return producer_[tensor]; }

  void set_budget(int64_t bytes) { budget_ = bytes; }
  int64_t budget() const { return budget_; }

  // Steps, cost and memory under the decisions; gives up (invalid) once the cost exceeds limit.
  Outcome Evaluate(double cost_limit = std::numeric_limits<double>::infinity());
  // As Evaluate, and writes the steps down.
  Outcome EvaluateInto(Trace* trace);

  // Of the last evaluation.
  // An output of a step, or with `bytes` 0 one that has no memory of its own.
  struct Value {
    int64_t bytes;
    int tensor;
    int step;
    int last;  // last step that reads it, or whatever shares its memory
  };
  const Value* values() const { return values_.data(); }
  int num_values() const { return num_values_; }
  // Op of the unplanned step at or before which a step runs.
  int stage_of_step(int step) const { return step_stage_[step]; }
  bool in_second_pool(int step) const {
    return problem_.ops[step_op_[step]].is_backward || step_clone_[step] > 0;
  }
  int64_t workspace_bytes() const { return workspace_; }
  int num_steps() const { return num_steps_; }
  // Steps simulated so far, over all evaluations: a measure of work without a clock.
  int64_t work() const { return work_; }
  // Counts work done elsewhere.
  void AddWork(int64_t steps) { work_ += steps; }

 private:
  // What Run needs of the active implementation, close together in memory.
  struct Hot {
    const int* reads;
    const int* reads_end;
    const int* outputs;
    const int* outputs_end;
    double time;
    int state_of;         // -1 when no state is continued
    bool runs;
    bool reads_kept;      // some reads are of kept outputs
    bool has_shares;
  };
  void FindUses();
  void FindGaps();
  bool MayTake(int op, int maker) const;
  void Activate(int op, int implementation);
  bool Need(int op) { return instance_[op] >= 0 || Rerun(op); }
  bool Rerun(int op);
  bool NeedInputs(const Hot& hot);
  void Run(int op);
  bool RunInAdvance(int stage);
  void HoldFrom(int gap);
  void EndOfGap(int op);
  bool RunAll(double cost_limit);
  void Measure(Outcome* outcome);
  void RecordSources(int op);
  void AddShares(int op, int step, int base);
  void ShareMemory();

  const Problem& problem_;
  int64_t budget_ = std::numeric_limits<int64_t>::max() / 4;
  // Who may read the op's value, over all implementations; in order.
  std::vector<std::vector<int>> uses_;
  std::vector<std::vector<int>> used_by_op_;  // ops whose value (or state) the op may use
  std::vector<int> first_gap_;                // of each op, into choices_
  std::vector<char> choices_;
  std::vector<int> held_from_;  // of each choice: where the value stays at hand
  std::vector<Gap> gaps_;
  std::vector<int> slot_of_gap_;
  std::vector<int> gap_of_slot_;  // -1 where nothing can be decided
  std::vector<int> advance_;      // of each gap
  std::vector<std::vector<int>> advance_at_;  // gaps by op
  std::vector<char> variant_on_;
  std::vector<int> implementation_;
  std::vector<Hot> hot_;
  std::vector<int> producer_;  // of each tensor, under the variants in use
  std::vector<int> slot_;      // of each tensor, in its producer's outputs
  std::vector<char> kept_;     // of each tensor: read from the first run only
  std::vector<char> can_rerun_;
  int64_t workspace_ = 0;  // largest of the ops that run
  int first_backward_ = 0;
  int max_steps_ = 0;

  // State of one evaluation.
  std::vector<int> instance_;    // of each op: the step whose value is at hand, or -1
  std::vector<int> first_run_;   // of each op
  std::vector<int> next_use_;    // of each op, into uses_
  std::vector<int> clones_;      // of each op: how often it has run again
  std::vector<char> pinned_;     // recomputed in advance, waiting for its use
  std::vector<int> touched_;
  int stage_ = 0;
  double cost_ = 0;
  // Steps and values so far; the vectors only grow, the counts say what is valid.
  int num_steps_ = 0, num_values_ = 0;
  std::vector<int> step_op_, step_stage_, step_clone_, first_value_;
  std::vector<Value> values_;
  std::vector<int> outputs_;      // tensors that outlive the step
  std::vector<int> value_root_;   // the value whose memory it shares
  std::vector<int> taken_at_;
  struct Share { int step, from, to; bool identity; };
  std::vector<Share> shares_;
  std::vector<int64_t> profile_;
  Trace* trace_ = nullptr;
  int64_t work_ = 0;
};

}  // namespace memonger

#endif  // MEMONGER_CORE_SIMULATOR_H_
