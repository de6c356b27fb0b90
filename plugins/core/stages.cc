// The simulator's log of stages, brought up to date.
//
// A stage depends on the decisions of the values that it touches, and on what is at hand when it
// begins. For each op the log tells which stages looked at its value and what was at hand behind
// them, so a stage that leaves something else at hand than before has only the next one that looked
// at that to be simulated again.
#include <algorithm>

#include "core/simulator.h"

namespace memonger {

void Simulator::Stage::Clear() {
  runs.clear();
  reads.clear();
  shares.clear();
  bytes.clear();
  looked_at.clear();
  ticks = 0;
  has_waits = false;
}

// The stages from begin up to end that looked at an op.
void Simulator::MarkLooks(int op, int begin, int end) {
  for (const Look& look : looks_[op]) {
    if (look.stage >= begin && look.stage < end) dirty_.Add(look.stage);
  }
}

// False when something is needed that must not run again, or there are too many steps. What is left
// to do then stays marked.
bool Simulator::UpdateStages() {
  for (int stage = dirty_.First(); stage >= 0; stage = dirty_.First()) {
    if (!Simulate(stage)) return false;
    dirty_.Remove(stage);
    if (num_steps_ <= 8 * max_steps_) continue;
    // Later stages still hold runs that become unnecessary once they are simulated again.
    for (int later = stage + 1; later < num_ops(); ++later) Forget(later);
    if (num_steps_ > max_steps_) return false;
  }
  relabelled_ = false;
  // Not before: a stage still to come may know the number.
  for (int run : ended_runs_) free_runs_[run_op_[run]].push_back(run);
  ended_runs_.clear();
  return num_steps_ <= max_steps_;
}

bool Simulator::Simulate(int stage) {
  Stage& log = stages_[stage];
  stage_ = stage;
  ++stamp_;
  next_.Clear();
  for (int run : log.runs) run_here_[run_op_[run]] = run;
  const bool done = RunStage();
  // Gives back the numbers of runs that the stage no longer has, or had begun where it failed.
  for (int run : done ? log.runs : next_.runs) {
    const int op = run_op_[run];
    if (run != op && (done ? ran_[op] != stamp_ : run_here_[op] != run)) ended_runs_.push_back(run);
  }
  for (int run : log.runs) run_here_[run_op_[run]] = -1;
  work_ += static_cast<int64_t>(next_.looked_at.size());
  if (done) Replace(&log);
  return done;
}

// Takes a stage out of the log until it is simulated again.
void Simulator::Forget(int stage) {
  Stage& log = stages_[stage];
  stage_ = stage;
  ++stamp_;
  next_.Clear();
  for (int run : log.runs) {
    if (run != run_op_[run]) ended_runs_.push_back(run);
  }
  Replace(&log);
  dirty_.Add(stage);
}

bool Simulator::RunStage() {
  // What hands a value on may have run before.
  if (hot_[stage_].runs && AtHand(stage_) < 0 && !RunWithInputs(stage_)) return false;
  for (const auto& used : used_by_op_[stage_]) {
    AtHand(used.first);
    EndOfGap(used.first, used.second);
  }
  for (int run : next_.runs) {
    const std::vector<int>& uses = uses_[run_op_[run]];
    int past = 0;
    while (past < static_cast<int>(uses.size()) && uses[past] <= stage_) ++past;
    EndOfGap(run_op_[run], past);
  }
  return true;
}

// Place of the first look at an op that is not before this stage.
size_t Simulator::FindLook(int op) const {
  const std::vector<Look>& looks = looks_[op];
  return std::lower_bound(looks.begin(), looks.end(), stage_,
                          [](const Look& look, int stage) { return look.stage < stage; }) -
         looks.begin();
}

// What is at hand where the stages up to a look have run.
Simulator::Look Simulator::Before(int op, size_t look) const {
  return look == 0 ? Look{stage_, -1, false} : looks_[op][look - 1];
}

int Simulator::AtHand(int op) {
  if (looked_at_[op] != stamp_) {
    looked_at_[op] = stamp_;
    next_.looked_at.push_back(op);
    at_hand_[op] = Before(op, FindLook(op));
  }
  return at_hand_[op].run;
}

// The run of an op whose result holds a tensor's value as well; -1: none so far.
int Simulator::HandedOn(int tensor) {
  const int by = problem_.tensor_handed_on_by[tensor];
  return by < 0 ? -1 : AtHand(by);
}

// The op to run for a tensor that is not at hand; -1: none may. What hands its value on may run
// before its place, as soon as what it reads is there.
int Simulator::RunsFor(int tensor) {
  const int by = problem_.tensor_handed_on_by[tensor];
  if (by > stage_ && implementation_[by] != 0) {
    bool ready = true;
    for (const int* read = hot_[by].reads; read != hot_[by].reads_end; ++read) {
      ready = ready && AtHand(producer_[*read]) >= 0;
    }
    if (ready) return by;
  }
  return MayRerun(producer_[tensor]) ? producer_[tensor] : -1;
}

bool Simulator::MayRerun(int op) const {
  if (!can_rerun_[op] || !hot_[op].runs) return false;
  if (!problem_.ops[stage_].is_backward) return false;
  if (problem_.max_clones == 0) return true;
  int clones = 0;
  for (const Look& look : looks_[op]) clones += look.stage < stage_ && look.ran_again;
  return clones < problem_.max_clones;
}

// Runs an op, and before it whatever it reads that is not at hand. A chain of those may be as long
// as the graph: no recursion.
bool Simulator::RunWithInputs(int first) {
  frames_.assign(1, Frame{first, hot_[first].reads});
  while (!frames_.empty()) {
    Frame& frame = frames_.back();
    const Hot& hot = hot_[frame.op];
    int missing = -1;
    bool needs = false;
    while (frame.next < hot.reads_end && !needs) {
      const int tensor = *frame.next++, maker = producer_[tensor];
      const bool kept = hot.reads_kept && kept_[tensor];
      // With a variant of its maker it is not kept, so the stage depends on the maker.
      if (kept && problem_.ops[maker].implementations.size() == 1) continue;
      needs = AtHand(maker) < 0 && !kept && HandedOn(tensor) < 0;
      if (needs) missing = RunsFor(tensor);
    }
    if (!needs && hot.state_of >= 0 && AtHand(hot.state_of) < 0) {
      needs = true;
      if (MayRerun(hot.state_of)) missing = hot.state_of;
    }
    if (!needs) {
      Run(frame.op);
      frames_.pop_back();
    } else if (missing >= 0) {
      frames_.push_back({missing, hot_[missing].reads});
    } else {
      return false;
    }
  }
  return true;
}

int Simulator::AddRun(int op) {
  const int run = static_cast<int>(run_op_.size());
  run_op_.push_back(op);
  size_t outputs = 0;
  for (const Implementation& impl : problem_.ops[op].implementations) {
    outputs = std::max(outputs, impl.outputs.size());
  }
  const size_t end = bytes_.size() + outputs;
  first_value_.push_back(static_cast<int>(end));
  run_of_value_.resize(end, run);
  tensor_.resize(end);
  bytes_.resize(end);
  made_at_.resize(end);
  last_at_.resize(end);
  read_at_.resize(end);
  parent_.resize(end, -1);
  children_.resize(end);
  return run;
}

int Simulator::NewRun(int op) {
  if (free_runs_[op].empty()) return AddRun(op);
  const int run = free_runs_[op].back();
  free_runs_[op].pop_back();
  return run;
}

void Simulator::Run(int op) {
  const Hot& hot = hot_[op];
  const int place = static_cast<int>(next_.runs.size());
  const int run = op == stage_ ? op : run_here_[op] >= 0 ? run_here_[op] : NewRun(op);
  const auto run_read = [&](int tensor) {
    const int maker = producer_[tensor];
    if (kept_[tensor]) return maker;
    return at_hand_[maker].run >= 0 ? at_hand_[maker].run : HandedOn(tensor);
  };
  const auto value_read = [&](int tensor, int run) {
    // What hands a value on makes nothing else.
    return first_value_[run] + (run_op_[run] == producer_[tensor] ? slot_[tensor] : 0);
  };
  for (const int* tensor = hot.reads; tensor != hot.reads_end; ++tensor) {
    const int made_by = run_read(*tensor);
    next_.reads.push_back({made_by, value_read(*tensor, made_by), place});
    next_.has_waits |= problem_.num_streams > 1 && hot_[run_op_[made_by]].stream != 0;
  }
  if (hot.state_of >= 0) next_.reads.push_back({at_hand_[hot.state_of].run, -1, place});
  if (hot.has_shares) {
    const Implementation& impl = active(op);
    for (const InplaceOption& option : impl.shares) {
      const int tensor = impl.inputs[option.input];
      if (producer_[tensor] < 0 || impl.ignored[option.input]) continue;
      next_.shares.push_back({value_read(tensor, run_read(tensor)),
                              first_value_[run] + option.output, place, option.identity, false});
    }
  }
  next_.runs.push_back(run);
  if (hot.stream == 0) {
    next_.ticks += hot.ticks;
  } else {
    next_.has_waits = true;
  }
  AtHand(op);
  at_hand_[op].run = run;
  ran_[op] = stamp_;
}

// Applies the decision of the gap that the op's value is in; called after each stage that touched
// it.
void Simulator::EndOfGap(int op, int uses) {
  Look& look = at_hand_[op];
  if (look.run >= 0 && stage_ < held_from_[first_gap_[op] + uses]) look.run = -1;
}

void Simulator::Replace(Stage* log) {
  for (int op : next_.looked_at) UpdateLook(op);
  for (int op : log->looked_at) {
    if (looked_at_[op] != stamp_) EraseLook(op);
  }
  ticks_ += next_.ticks - log->ticks;
  num_steps_ += static_cast<int>(next_.runs.size()) - static_cast<int>(log->runs.size());
  if (problem_.max_clones > 0 && next_.runs != log->runs) {
    // Runs are counted from the start.
    for (int stage = stage_ + 1; stage < num_ops(); ++stage) dirty_.Add(stage);
  }
  if (!relabelled_ && next_.runs == log->runs && next_.reads == log->reads) {
    std::swap(log->looked_at, next_.looked_at);
    return;
  }
  work_ += 2 * static_cast<int64_t>(log->reads.size() + next_.reads.size());
  RemoveValues(stage_);
  std::swap(*log, next_);
  AddValues(stage_);
}

void Simulator::UpdateLook(int op) {
  std::vector<Look>& looks = looks_[op];
  Look now = at_hand_[op];
  now.stage = stage_;
  now.ran_again = ran_[op] == stamp_ && op != stage_;
  const size_t place = FindLook(op);
  Look old = Before(op, place);
  if (place < looks.size() && looks[place].stage == stage_) {
    old = looks[place];
    looks[place] = now;
  } else {
    looks.insert(looks.begin() + static_cast<std::ptrdiff_t>(place), now);
  }
  if (!now.Same(old) && place + 1 < looks.size()) dirty_.Add(looks[place + 1].stage);
}

void Simulator::EraseLook(int op) {
  std::vector<Look>& looks = looks_[op];
  const size_t place = FindLook(op);
  const Look old = looks[place];
  looks.erase(looks.begin() + static_cast<std::ptrdiff_t>(place));
  if (!Before(op, place).Same(old) && place < looks.size()) dirty_.Add(looks[place].stage);
}

}  // namespace memonger
