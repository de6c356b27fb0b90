// The memory that the steps of the simulator's log take.
//
// A value takes its bytes from the step that makes it to the last one that reads it. Where an
// output takes the memory of an input, as MXNet's planner lets it (see storage.h), the two overlap
// in that one step, so that is all it saves; an output that is the same value as its input has no
// bytes of its own, and its reads are the input's.
#include <algorithm>

#include "core/simulator.h"

namespace memonger {

// Takes what a stage makes and reads out of the values.
void Simulator::RemoveValues(int stage) {
  const Stage& log = stages_[stage];
  for (const Sharing& share : log.shares) {
    if (share.identity && share.accepted) SetParent(share.to, -1);
  }
  for (const Read& read : log.reads) {
    if (read.value < 0) continue;
    std::vector<int64_t>& reads = read_at_[read.value];
    const size_t found = FindRead(read.value, stage);
    if (found == reads.size()) continue;  // read twice by this stage
    reads[found] = reads.back();
    reads.pop_back();
    FindLast(read.value);
  }
  for (int run : log.runs) {
    for (int value = first_value_[run]; value < first_value_[run + 1]; ++value) {
      Count(value, -bytes_[value]);
      bytes_[value] = 0;
    }
  }
}

void Simulator::AddValues(int stage) {
  Stage& log = stages_[stage];
  log.bytes.assign(log.runs.size(), Bytes{0, 0, 0});
  int place = 0;
  for (int run : log.runs) {
    const Hot& hot = hot_[run_op_[run]];
    const std::vector<int64_t>& sizes =
        run < num_ops() ? problem_.tensor_bytes : problem_.clone_bytes;
    int value = first_value_[run];
    for (const int* tensor = hot.outputs; tensor != hot.outputs_end; ++tensor, ++value) {
      tensor_[value] = *tensor;
      made_at_[value] = last_at_[value] = At(stage, place);
      bytes_[value] = sizes[*tensor];
      Count(value, bytes_[value]);
      FindLast(value);
    }
    ++place;
  }
  for (const Read& read : log.reads) {
    if (read.value < 0) continue;
    std::vector<int64_t>& reads = read_at_[read.value];
    const size_t found = FindRead(read.value, stage);
    if (found == reads.size()) reads.push_back(0);
    reads[found] = At(stage, read.place);
    FindLast(read.value);
  }
  if (!log.shares.empty()) sharing_.Add(stage);
}

// Counts a value's bytes, or takes them back where they are negative.
void Simulator::Count(int value, int64_t bytes) {
  if (bytes == 0 || parent_[value] >= 0) return;
  BytesAt(made_at_[value]).made += bytes;
  if (StageOf(last_at_[value]) < num_ops()) BytesAt(last_at_[value]).freed += bytes;
}

// Place of a stage among those that read a value, or behind them.
size_t Simulator::FindRead(int value, int stage) const {
  const std::vector<int64_t>& reads = read_at_[value];
  size_t place = 0;
  while (place < reads.size() && StageOf(reads[place]) != stage) ++place;
  return place;
}

void Simulator::FindLast(int value) {
  int64_t last = made_at_[value];
  for (int64_t at : read_at_[value]) last = std::max(last, at);
  for (int child : children_[value]) last = std::max(last, last_at_[child]);
  // Numbers of first runs are those of ops.
  if (problem_.tensor_is_output[tensor_[value]] && run_of_value_[value] < num_ops()) {
    last = At(num_ops(), 0);
  }
  // What backward reads of the pool of forward is never freed.
  if (problem_.two_pools && !InSecondPool(value) && StageOf(last) >= first_backward_) {
    last = At(num_ops(), 0);
  }
  const int64_t before = last_at_[value];
  if (last == before) return;
  Count(value, -bytes_[value]);
  last_at_[value] = last;
  Count(value, bytes_[value]);
  MarkSharing(made_at_[value]);
  MarkSharing(before);
  MarkSharing(last);
  if (parent_[value] >= 0) FindLast(parent_[value]);
}

// Makes a value the same as another one (-1: as none).
void Simulator::SetParent(int value, int parent) {
  const int before = parent_[value];
  if (before == parent) return;
  Count(value, -bytes_[value]);
  parent_[value] = parent;
  Count(value, bytes_[value]);
  if (before >= 0) {
    std::vector<int>& children = children_[before];
    children.erase(std::find(children.begin(), children.end(), value));
    FindLast(before);
  }
  if (parent >= 0) {
    children_[parent].push_back(value);
    FindLast(parent);
  }
}

void Simulator::MarkSharing(int64_t at) {
  const int stage = StageOf(at);
  if (stage < num_ops() && !stages_[stage].shares.empty()) sharing_.Add(stage);
}

// Whether an output takes the memory of an input: equal in size, read at all or a view, and neither
// has done so yet. The input must not be read later, unless both are the same value.
bool Simulator::MayShare(const Stage& log, size_t place) const {
  const Sharing& share = log.shares[place];
  const int64_t at = made_at_[share.to];
  if (bytes_[share.to] == 0 || bytes_[share.to] != bytes_[share.from]) return false;
  if (last_at_[share.to] == at && !problem_.tensor_is_view[tensor_[share.to]]) return false;
  for (size_t i = place; i > 0 && log.shares[i - 1].place == share.place; --i) {
    const Sharing& other = log.shares[i - 1];
    if (other.accepted && (other.from == share.from || other.to == share.to)) return false;
  }
  if (problem_.two_pools && InSecondPool(share.from) != InSecondPool(share.to)) return false;
  int root = share.from;
  while (parent_[root] >= 0) root = parent_[root];
  return share.identity || last_at_[root] == at;
}

void Simulator::ShareMemory(int stage) {
  Stage& log = stages_[stage];
  for (Bytes& bytes : log.bytes) bytes.saved = 0;
  for (size_t i = 0; i < log.shares.size(); ++i) {
    Sharing& share = log.shares[i];
    const bool before = share.accepted;
    share.accepted = MayShare(log, i);
    if (!share.identity && share.accepted) log.bytes[share.place].saved += bytes_[share.to];
    if (!share.identity || before == share.accepted) continue;
    if (share.accepted) SetParent(share.to, share.from);
    if (before && parent_[share.to] == share.from) SetParent(share.to, -1);
  }
}

// Calls visit(stage, live bytes) for each step.
template <typename Visit>
void Simulator::VisitSteps(Visit visit) const {
  int64_t live = 0, peak = 0;
  for (int stage = 0; stage < num_ops(); ++stage) {
    // The pool of forward stays as large as it once was.
    if (problem_.two_pools && stage == first_backward_) live = std::max(live, peak);
    for (const Bytes& bytes : stages_[stage].bytes) {
      live += bytes.made;
      peak = std::max(peak, live - bytes.saved);
      visit(stage, live - bytes.saved);
      live -= bytes.freed;
    }
  }
}

void Simulator::Measure(Outcome* outcome) {
  for (int stage = sharing_.First(); stage >= 0; stage = sharing_.First()) {
    sharing_.Remove(stage);
    ShareMemory(stage);
  }
  const int64_t room = budget_ - bytes_outside_pool();
  int64_t peak = -1;
  double overflow = 0;
  int peak_stage = 0;
  VisitSteps([&](int stage, int64_t live) {
    if (live > peak) {
      peak = live;
      peak_stage = stage;
    }
    if (live > room) overflow += static_cast<double>(live - room);
  });
  outcome->peak = peak + bytes_outside_pool();
  outcome->host_overflow = host_outputs_.empty() ? 0 : HostOverflow();
  outcome->overflow = overflow + outcome->host_overflow;
  outcome->peak_op = peak_stage;
  work_ += num_steps_ / 4 + 20;
}

// Bytes of the host above its budget, summed over the steps that make something there. Only first
// runs do.
double Simulator::HostOverflow() const {
  std::vector<std::pair<int64_t, int64_t>> changes;  // when, in bytes
  for (const auto& made : host_outputs_) {
    const std::vector<int>& outputs = active(made.first).outputs;
    const auto found = std::find(outputs.begin(), outputs.end(), made.second);
    if (found == outputs.end()) continue;
    const size_t value = first_value_[made.first] + (found - outputs.begin());
    changes.emplace_back(made_at_[value], problem_.host_bytes[made.second]);
    changes.emplace_back(last_at_[value] + 1, -problem_.host_bytes[made.second]);
  }
  std::sort(changes.begin(), changes.end());
  int64_t live = problem_.host_bytes_before;
  double overflow = static_cast<double>(std::max<int64_t>(0, live - problem_.host_budget));
  for (const auto& change : changes) {
    live += change.second;
    if (change.second > 0 && live > problem_.host_budget) {
      overflow += static_cast<double>(live - problem_.host_budget);
    }
  }
  return overflow;
}

void Simulator::StagePeaks(std::vector<int64_t>* peaks) const {
  peaks->assign(num_ops(), 0);
  VisitSteps(
      [peaks](int stage, int64_t live) { (*peaks)[stage] = std::max((*peaks)[stage], live); });
}

void Simulator::ListValues(std::vector<Value>* values) {
  start_.assign(1, 0);
  for (const Stage& log : stages_) {
    start_.push_back(start_.back() + static_cast<int>(log.runs.size()));
  }
  const auto step = [this](int64_t at) {
    return start_[StageOf(at)] + static_cast<int>(at & 0xFFFFFFFF);
  };
  values->clear();
  place_.resize(bytes_.size());
  for (const Stage& log : stages_) {
    for (int run : log.runs) {
      for (int value = first_value_[run]; value < first_value_[run + 1]; ++value) {
        place_[value] = values->size();
        values->push_back({bytes_[value], tensor_[value], step(made_at_[value]),
                           step(last_at_[value]), InSecondPool(value)});
      }
    }
    for (const Sharing& share : log.shares) {
      if (!share.accepted) continue;
      Value& to = (*values)[place_[share.to]];
      place_[share.to] = place_[share.from];
      Value& root = (*values)[place_[share.to]];
      root.last = std::max(root.last, to.last);
      to.bytes = 0;
    }
  }
}

void Simulator::WriteTrace(Trace* trace) const {
  std::vector<int> clones(num_ops(), 0), run_of(producer_.size(), -1);
  std::vector<int> step_of_run(run_op_.size(), -1);  // -1: no first run
  for (const Stage& log : stages_) {
    auto read = log.reads.begin();
    for (int place = 0; place < static_cast<int>(log.runs.size()); ++place) {
      const int run = log.runs[place], op = run_op_[run];
      const Implementation& impl = active(op);
      step_of_run[run] = static_cast<int>(trace->ops.size());
      trace->ops.push_back(op);
      trace->implementations.push_back(implementation_[op]);
      // A backward op runs once, if not at its place.
      const bool first = run == op || problem_.ops[op].is_backward;
      trace->clones.push_back(first ? 0 : ++clones[op]);
      trace->source_begin.push_back(static_cast<int>(trace->sources.size()));
      const Hot& hot = hot_[op];
      for (const int* tensor = hot.reads; tensor != hot.reads_end; ++tensor, ++read) {
        if (!kept_[*tensor]) run_of[*tensor] = read->run;
      }
      if (hot.state_of >= 0) ++read;
      for (size_t i = 0; i < impl.inputs.size(); ++i) {
        const int tensor = impl.inputs[i], maker = producer_[tensor];
        const bool from_clone = maker >= 0 && !impl.ignored[i] && !kept_[tensor];
        const int source = from_clone ? run_of[tensor] : maker;
        trace->sources.push_back(maker < 0 ? -1 : step_of_run[source]);
      }
    }
  }
  trace->source_begin.push_back(static_cast<int>(trace->sources.size()));
}

}  // namespace memonger
