// From decisions to steps, and from steps to time and the peak of live bytes.
//
// A decision belongs to an op and the gap between two consecutive uses of its value (a use is an
// op of the unplanned step that reads it; gap 0 lies before the first use, the last one behind the
// last use): keep the value, drop it and keep it again once something has recomputed it, or drop
// it after every op. Values are recomputed on demand, right before the first op that needs them.
// A gap may also name an op. A value dropped after every op is kept again from there on, once
// something has recomputed it: a stretch that is run again for what follows it, and later for
// itself, need not be whole in memory twice. Bytes count from the step that makes a value to the last
// step that reads that instance, so keeping a value that nobody reads again costs nothing.
//
// The simulator keeps a log of what every stage runs, a stage being an op of the unplanned step
// with whatever runs again right before it. An evaluation simulates the stages that a changed
// decision reaches, the others stand; then it goes over all steps for their memory. The order of
// steps is that of memonger.graph.schedule.expand. With several streams a clock goes over all steps
// as well; its rules are those of memonger/graph/clock.py.
#ifndef MEMONGER_CORE_SIMULATOR_H_
#define MEMONGER_CORE_SIMULATOR_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
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
  int64_t peak = 0;     // with the bytes outside the pool, at the worst step
  double overflow = 0;  // bytes above the budget, summed over the steps; with those of the host
  double host_overflow = 0;  // the same of the host's memory alone
  int peak_op = 0;      // op of the unplanned step at or before which the worst step runs
};

// What a schedule needs to be written down.
struct Trace {
  std::vector<int> ops;  // op of each step
  std::vector<int> implementations;
  std::vector<int> clones;        // number of the run: 0 the first
  std::vector<int> source_begin;  // into sources, one more than steps
  std::vector<int> sources;       // for each input position the step that made it, or -1
};

// Stages to be visited in order; more may be added on the way.
class StageSet {
 public:
  void Resize(int stages) { words_.resize((static_cast<size_t>(stages) + 63) / 64); }
  void Add(int stage) {
    const size_t word = static_cast<size_t>(stage) / 64;
    words_[word] |= uint64_t{1} << (stage % 64);
    first_ = std::min(first_, word);
  }
  void Remove(int stage) {
    words_[static_cast<size_t>(stage) / 64] &= ~(uint64_t{1} << (stage % 64));
  }
  // -1: none.
  int First() {
    while (first_ < words_.size() && !words_[first_]) ++first_;
    if (first_ == words_.size()) return -1;
    return static_cast<int>(first_) * 64 + __builtin_ctzll(words_[first_]);
  }

 private:
  std::vector<uint64_t> words_;
  size_t first_ = 0;  // words before this one are empty
};

class Simulator {
 public:
  explicit Simulator(const Problem& problem);

  const Problem& problem() const { return problem_; }
  const std::vector<Gap>& gaps() const { return gaps_; }
  // Whether an op, or the end of the step, lies behind the forward pass of what comes before it.
  bool IsBackward(int op) const { return op == num_ops() || problem_.ops[op].is_backward; }
  // First backward op; the number of ops when there is none.
  int first_backward() const { return first_backward_; }
  int num_ops() const { return static_cast<int>(problem_.ops.size()); }

  // Decisions. Gaps are named by their position in gaps().
  Choice choice(int gap) const { return static_cast<Choice>(choices_[slot_of_gap_[gap]]); }
  void set_choice(int gap, Choice choice);
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

  // Steps, cost and memory under the decisions; memory not (invalid) where the cost exceeds limit.
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
    bool in_second_pool;
  };
  void ListValues(std::vector<Value>* values);
  // (ops,): the most live bytes of the pool while each stage runs.
  void StagePeaks(std::vector<int64_t>* peaks) const;
  // Op of the unplanned step at or before which a step runs.
  int stage_of_step(int step) const {
    return static_cast<int>(std::upper_bound(start_.begin(), start_.end(), step) - start_.begin()) -
           1;
  }
  // Bytes outside the pool: the largest workspace, and the objects of what runs.
  int64_t bytes_outside_pool() const {
    return workspace_ + problem_.objects_bytes_per_op * num_steps_;
  }
  int num_steps() const { return num_steps_; }
  // Work so far, over all evaluations, in units of 25 ns of an idle core; no clock is read.
  int64_t work() const { return work_; }
  // Counts work done elsewhere.
  void AddWork(int64_t steps) { work_ += steps; }

 private:
  // What a run needs of the active implementation, close together in memory.
  struct Hot {
    const int* reads;
    const int* reads_end;
    const int* outputs;
    const int* outputs_end;
    int64_t ticks;  // its time, as a whole number: sums do not depend on their order
    int stream;
    int state_of;   // -1 when no state is continued
    bool runs;
    bool reads_kept;  // some reads are of kept outputs
    bool has_shares;
  };
  // Runs have numbers: the first run of an op that of the op, others any that is free. An op runs
  // once in a stage, and has the same number as long as it does.
  struct Read {
    int run, value;  // value -1: the state object
    int place;       // of the reader, in the stage's runs
    bool operator==(const Read& o) const {
      return run == o.run && value == o.value && place == o.place;
    }
  };
  // An output may take the memory of an input.
  struct Sharing {
    int from, to;  // values
    int place;
    bool identity;  // while the input is still in use, too: it is the same value
    bool accepted;
  };
  // Bytes of one step: what is made, what is freed behind it, and what outputs take from inputs.
  struct Bytes {
    int64_t made, freed, saved;
  };
  struct Stage {
    std::vector<int> runs;  // in order
    std::vector<Read> reads;
    std::vector<Sharing> shares;
    std::vector<Bytes> bytes;    // of each run
    std::vector<int> looked_at;  // ops whose value at hand the stage depends on, or changes
    int64_t ticks = 0;           // of compute
    bool has_waits = false;      // runs of other streams, or reads of what those make
    void Clear();
  };
  // A stage that looked at an op's value, and what is at hand behind it.
  struct Look {
    int stage;
    int run;      // -1: nothing
    bool ran_again;
    bool Same(const Look& other) const { return run == other.run; }
  };
  void FindUses();
  void FindGaps();
  bool MayTake(int op, int maker) const;
  void Activate(int op, int implementation);
  void HoldFrom(int gap);
  // stages.cc
  void MarkLooks(int op, int begin, int end);
  bool UpdateStages();
  bool Simulate(int stage);
  void Forget(int stage);
  bool RunStage();
  size_t FindLook(int op) const;
  Look Before(int op, size_t look) const;
  int AtHand(int op);
  int HandedOn(int tensor);
  int RunsFor(int tensor);
  bool MayRerun(int op) const;
  bool RunWithInputs(int op);
  void Run(int op);
  int AddRun(int op);
  int NewRun(int op);
  void EndOfGap(int op, int uses);
  void Replace(Stage* log);
  void UpdateLook(int op);
  void EraseLook(int op);
  // live_bytes.cc
  // Steps are named by stage and place in it, in one number that grows with time.
  static int64_t At(int stage, int place) { return (int64_t{stage} << 32) + place; }
  static int StageOf(int64_t at) { return static_cast<int>(at >> 32); }
  Bytes& BytesAt(int64_t at) { return stages_[StageOf(at)].bytes[at & 0xFFFFFFFF]; }
  void RemoveValues(int stage);
  void AddValues(int stage);
  void Count(int value, int64_t bytes);
  size_t FindRead(int value, int stage) const;
  void FindLast(int value);
  void SetParent(int value, int parent);
  bool InSecondPool(int value) const {
    const int run = run_of_value_[value];
    return run >= num_ops() || problem_.ops[run_op_[run]].is_backward;
  }
  void MarkSharing(int64_t at);
  bool MayShare(const Stage& log, size_t share) const;
  void ShareMemory(int stage);
  template <typename Visit>
  void VisitSteps(Visit visit) const;
  void Measure(Outcome* outcome);
  double HostOverflow() const;
  // clock.cc
  int64_t EndOfLastStream();
  double EndOfLastStream(const Trace& trace) const;
  void WriteTrace(Trace* trace) const;

  const Problem& problem_;
  int64_t budget_ = std::numeric_limits<int64_t>::max() / 4;
  // Who may read the op's value, over all implementations; in order.
  std::vector<std::vector<int>> uses_;
  // Ops whose value (or state) the op may use, and how many uses they have up to it.
  std::vector<std::vector<std::pair<int, int>>> used_by_op_;
  std::vector<int> first_gap_;  // of each op, into choices_
  std::vector<char> choices_;
  std::vector<int> held_from_;  // of each choice: where the value stays at hand
  std::vector<Gap> gaps_;
  std::vector<int> slot_of_gap_;
  std::vector<int> gap_of_slot_;              // -1 where nothing can be decided
  std::vector<int> advance_;                  // of each gap
  std::vector<char> variant_on_;
  std::vector<int> implementation_;
  std::vector<Hot> hot_;
  std::vector<int> producer_;  // of each tensor, under the variants in use
  std::vector<int> slot_;      // of each tensor, in its producer's outputs
  std::vector<char> kept_;     // of each tensor: read from the first run only
  std::vector<char> can_rerun_;
  double ticks_per_second_ = 1;
  int64_t workspace_ = 0;  // largest of the ops that run
  int first_backward_ = 0;
  int max_steps_ = 0;

  // The log.
  std::vector<Stage> stages_;
  std::vector<std::vector<Look>> looks_;     // of each op, by stage
  std::vector<int> run_op_;                  // of each run number
  std::vector<std::vector<int>> free_runs_;  // of each op
  std::vector<int> ended_runs_;              // free once the log is up to date
  StageSet dirty_;                           // to be simulated again
  int num_steps_ = 0;
  int64_t ticks_ = 0;              // of compute, no more than the step takes
  std::vector<std::pair<int, int>> host_outputs_;  // ops and what they may make on the host
  std::vector<int64_t> free_at_;   // of each stream: when it has run what is issued
  std::vector<int64_t> ended_at_;  // of each run number
  bool relabelled_ = false;  // variants changed what runs make

  // The stage that is being simulated.
  int stage_ = 0;
  int stamp_ = 0;
  Stage next_;
  std::vector<Look> at_hand_;   // of each op, where stamped
  std::vector<int> looked_at_;  // of each op: stamp
  std::vector<int> ran_;        // of each op: stamp
  std::vector<int> run_here_;   // of each op: its number in the log of this stage, or -1
  struct Frame {
    int op;
    const int* next;
  };
  std::vector<Frame> frames_;

  // What the runs of the log make, by value. A run's values follow each other.
  std::vector<int> first_value_ = {0};  // of each run number, and one behind them
  std::vector<int> run_of_value_, tensor_;
  std::vector<int64_t> bytes_;  // 0: nothing now
  std::vector<int64_t> made_at_;
  std::vector<int64_t> last_at_;               // where it is last read, or what is the same value
  std::vector<std::vector<int64_t>> read_at_;  // by each stage last
  std::vector<int> parent_;                    // the value that it is the same as, or -1
  std::vector<std::vector<int>> children_;
  StageSet sharing_;           // stages where other outputs may take memory than before
  std::vector<int> outputs_;   // tensors that outlive the step
  std::vector<int> start_;     // first step of each stage, for ListValues()
  std::vector<size_t> place_;  // of each value in that list: whose memory it takes
  int64_t work_ = 0;
};

}  // namespace memonger

#endif  // MEMONGER_CORE_SIMULATOR_H_
