#include "core/simulator.h"

#include <algorithm>

namespace memonger {

Simulator::Simulator(const Problem& problem)
    : problem_(problem),
      variant_on_(problem.variants.size(), 0),
      implementation_(problem.ops.size(), 0),
      hot_(problem.ops.size()),
      producer_(problem.tensor_bytes.size(), -1),
      slot_(problem.tensor_bytes.size(), 0),
      kept_(problem.tensor_bytes.size(), 0) {
  const int n = num_ops();
  first_backward_ = n;
  for (int op = n - 1; op >= 0; --op) {
    if (problem.ops[op].is_backward) first_backward_ = op;
  }
  for (int op = 0; op < n; ++op) {
    Activate(op, 0);
    can_rerun_.push_back(problem.ops[op].can_rerun && problem.pins[op] != 1 &&
                         (problem.recompute_in_forward || !problem.ops[op].is_backward));
  }
  max_steps_ = 12 * n + 1000;
  // One op runs at most once more after the limit is seen, by each level of recursion.
  const size_t room = static_cast<size_t>(max_steps_ + 2 * n + 2);
  step_op_.resize(room);
  step_stage_.resize(room);
  step_clone_.resize(room);
  first_value_.resize(room);
  values_.resize(room);
  FindUses();
  FindGaps();
  advance_.assign(gaps_.size(), -1);
  advance_at_.resize(n);
  for (size_t tensor = 0; tensor < problem.tensor_bytes.size(); ++tensor) {
    if (problem.tensor_is_output[tensor]) outputs_.push_back(static_cast<int>(tensor));
  }
  for (const Op& op : problem.ops) {
    workspace_ = std::max(workspace_, op.implementations[0].workspace_bytes);
  }
  for (int variant : problem.first_variants) set_variant(variant, true);
}

void Simulator::FindUses() {
  const int n = num_ops();
  // Who may make each tensor, over all implementations.
  std::vector<std::vector<int>> makers(problem_.tensor_bytes.size());
  for (int op = 0; op < n; ++op) {
    for (const Implementation& impl : problem_.ops[op].implementations) {
      for (int tensor : impl.outputs) {
        if (makers[tensor].empty() || makers[tensor].back() != op) makers[tensor].push_back(op);
      }
    }
  }
  uses_.resize(n);
  used_by_op_.resize(n);
  for (int op = 0; op < n; ++op) {
    std::vector<int>& used = used_by_op_[op];
    for (const Implementation& impl : problem_.ops[op].implementations) {
      for (int tensor : impl.reads) {
        for (int maker : makers[tensor]) {
          // A value is read from the first run only as long as its maker has no variant.
          const bool kept = problem_.tensor_is_kept[tensor] &&
                            problem_.ops[maker].implementations.size() == 1;
          if (maker < op && !kept) used.push_back(maker);
        }
      }
    }
    for (const Implementation& impl : problem_.ops[op].implementations) {
      if (impl.uses_state) used.push_back(problem_.ops[op].state_of);
    }
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    for (int maker : used) uses_[maker].push_back(op);
  }
}

void Simulator::FindGaps() {
  const int n = num_ops();
  for (int op = 0; op < n; ++op) {
    const std::vector<int>& uses = uses_[op];
    first_gap_.push_back(static_cast<int>(choices_.size()));
    for (int k = 0; k <= static_cast<int>(uses.size()); ++k) {
      Gap gap;
      gap.op = op;
      gap.index = k;
      gap.trailing = k == static_cast<int>(uses.size());
      gap.begin = k ? uses[k - 1] : op;
      gap.end = gap.trailing ? n : uses[k];
      const bool forward_only = !problem_.recompute_in_forward && gap.end < first_backward_;
      // In a gap between neighbours nothing can be gained but what the first one takes in place.
      const bool free = can_rerun_[op] && !forward_only && !(gap.trailing && uses.empty()) &&
                        (gap.end - gap.begin > 1 || MayTake(gap.begin, op));
      // What must not run again is kept for clones that may read it; unread, that costs nothing.
      char choice = gap.trailing && can_rerun_[op] ? kDropTransient : kKeep;
      if (free && problem_.pins[op] == 2 && gap.begin < first_backward_ &&
          gap.end >= first_backward_ && choice == kKeep) {
        choice = kDropThenRetain;
      }
      gap_of_slot_.push_back(free ? static_cast<int>(gaps_.size()) : -1);
      if (free) {
        slot_of_gap_.push_back(static_cast<int>(choices_.size()));
        gaps_.push_back(gap);
      }
      choices_.push_back(choice);
      held_from_.push_back(choice == kKeep ? 0 : choice == kDropTransient ? n + 1 : gap.begin + 1);
    }
  }
}

// Whether an op may work in the memory of what another one made.
bool Simulator::MayTake(int op, int maker) const {
  for (const Implementation& impl : problem_.ops[op].implementations) {
    for (const InplaceOption& option : impl.shares) {
      if (option.identity) continue;
      for (const Implementation& made : problem_.ops[maker].implementations) {
        if (std::find(made.outputs.begin(), made.outputs.end(), impl.inputs[option.input]) !=
            made.outputs.end()) {
          return true;
        }
      }
    }
  }
  return false;
}

void Simulator::Activate(int op, int implementation) {
  implementation_[op] = implementation;
  const Implementation& impl = active(op);
  const std::vector<int>& outputs = impl.outputs;
  Hot& hot = hot_[op];
  hot.reads = impl.reads.data();
  hot.reads_end = hot.reads + impl.reads.size();
  hot.outputs = outputs.data();
  hot.outputs_end = hot.outputs + outputs.size();
  hot.time = impl.time;
  hot.runs = impl.runs;
  hot.state_of = impl.uses_state ? problem_.ops[op].state_of : -1;
  hot.has_shares = !impl.shares.empty();
  hot.reads_kept = false;
  for (int tensor : impl.reads) hot.reads_kept |= problem_.tensor_is_kept[tensor] != 0;
  for (size_t slot = 0; slot < outputs.size(); ++slot) {
    producer_[outputs[slot]] = op;
    slot_[outputs[slot]] = static_cast<int>(slot);
    // Another operator has no outputs that must stay with the first run.
    kept_[outputs[slot]] = implementation == 0 && problem_.tensor_is_kept[outputs[slot]];
  }
}

void Simulator::set_variant(int variant, bool on) {
  if (variant_on_[variant] == static_cast<char>(on)) return;
  variant_on_[variant] = on;
  for (const auto& choice : problem_.variants[variant].choices) {
    Activate(choice.first, on ? choice.second : 0);
  }
  workspace_ = 0;
  for (int op = 0; op < num_ops(); ++op) {
    workspace_ = std::max(workspace_, active(op).workspace_bytes);
  }
}

void Simulator::set_advance(int gap, int op) {
  const int before = advance_[gap];
  if (before == op) return;
  if (!problem_.recompute_in_forward) {
    advance_[gap] = op;
    return HoldFrom(gap);
  }
  if (before >= 0) {
    std::vector<int>& list = advance_at_[before];
    list.erase(std::find(list.begin(), list.end(), gap));
  }
  advance_[gap] = op;
  if (op >= 0) {
    std::vector<int>& list = advance_at_[op];
    list.insert(std::upper_bound(list.begin(), list.end(), gap), gap);
  }
}

void Simulator::HoldFrom(int gap) {
  const int slot = slot_of_gap_[gap];
  int from = 0;
  if (choices_[slot] == kDropThenRetain) from = gaps_[gap].begin + 1;
  if (choices_[slot] == kDropTransient) {
    from = advance_[gap] >= 0 && !problem_.recompute_in_forward ? advance_[gap] : num_ops() + 1;
  }
  held_from_[slot] = from;
}

bool Simulator::NeedInputs(const Hot& hot) {
  for (const int* tensor = hot.reads; tensor != hot.reads_end; ++tensor) {
    if (hot.reads_kept && kept_[*tensor]) continue;
    if (!Need(producer_[*tensor])) return false;
  }
  return hot.state_of < 0 || Need(hot.state_of);
}

bool Simulator::Rerun(int op) {
  if (!can_rerun_[op] || !hot_[op].runs || num_steps_ >= max_steps_) return false;
  if (!problem_.recompute_in_forward && stage_ < first_backward_) return false;
  if (problem_.max_clones > 0 && clones_[op] >= problem_.max_clones) return false;
  if (!NeedInputs(hot_[op])) return false;
  ++clones_[op];
  Run(op);
  return true;
}

void Simulator::Run(int op) {
  const int step = num_steps_;
  const Hot& hot = hot_[op];
  for (const int* tensor = hot.reads; tensor != hot.reads_end; ++tensor) {
    const int maker = producer_[*tensor];
    const bool kept = hot.reads_kept && kept_[*tensor];
    const int run = kept ? first_run_[maker] : instance_[maker];
    values_[first_value_[run] + slot_[*tensor]].last = step;
  }
  if (trace_) RecordSources(op);
  const int base = num_values_;
  if (values_.size() < static_cast<size_t>(base) + (hot.outputs_end - hot.outputs)) {
    values_.resize(2 * values_.size() + (hot.outputs_end - hot.outputs));
  }
  for (const int* tensor = hot.outputs; tensor != hot.outputs_end; ++tensor) {
    values_[num_values_++] = {problem_.tensor_bytes[*tensor], *tensor, step, step};
  }
  if (hot.has_shares) AddShares(op, step, base);
  instance_[op] = step;
  step_op_[step] = op;
  step_stage_[step] = stage_;
  step_clone_[step] = clones_[op];
  first_value_[step] = base;
  ++num_steps_;
  cost_ += hot.time;
  touched_.push_back(op);
}

void Simulator::AddShares(int op, int step, int base) {
  const Implementation& impl = active(op);
  for (const InplaceOption& option : impl.shares) {
    const int tensor = impl.inputs[option.input];
    const int maker = producer_[tensor];
    if (maker < 0 || impl.ignored[option.input]) continue;
    const int run = kept_[tensor] ? first_run_[maker] : instance_[maker];
    shares_.push_back({step, first_value_[run] + slot_[tensor], base + option.output,
                       option.identity});
  }
}

bool Simulator::RunInAdvance(int stage) {
  for (int gap : advance_at_[stage]) {
    const Gap& g = gaps_[gap];
    if (choices_[slot_of_gap_[gap]] == kKeep || next_use_[g.op] != g.index ||
        instance_[g.op] >= 0 || stage <= g.op || g.trailing) {
      continue;
    }
    if (!Need(g.op)) return false;
    pinned_[g.op] = 1;
  }
  return true;
}

// Applies the decision of the gap that the op's value is in; called after each op that touched it.
void Simulator::EndOfGap(int op) {
  if (instance_[op] < 0 || pinned_[op]) return;
  if (stage_ < held_from_[first_gap_[op] + next_use_[op]]) instance_[op] = -1;
}

bool Simulator::RunAll(double cost_limit) {
  const int n = num_ops();
  instance_.assign(n, -1);
  first_run_.assign(n, -1);
  next_use_.assign(n, 0);
  clones_.assign(n, 0);
  pinned_.assign(n, 0);
  num_steps_ = num_values_ = 0;
  shares_.clear();
  cost_ = 0;
  for (int op = 0; op < n; ++op) {
    stage_ = op;
    touched_.clear();
    if (!advance_at_[op].empty() && !RunInAdvance(op)) return false;
    if (hot_[op].runs) {
      if (!NeedInputs(hot_[op])) return false;
      Run(op);
      first_run_[op] = instance_[op];
      if (cost_ > cost_limit) return false;
    }
    for (int used : used_by_op_[op]) {
      ++next_use_[used];
      pinned_[used] = 0;
      EndOfGap(used);
    }
    for (int ran : touched_) EndOfGap(ran);
  }
  return true;
}

void Simulator::Measure(Outcome* outcome) {
  const int steps = num_steps();
  profile_.assign(steps + 2, 0);
  for (const auto& output : outputs_) {
    const int op = producer_[output];
    if (op >= 0 && first_run_[op] >= 0) values_[first_value_[first_run_[op]] + slot_[output]].last = steps;
  }
  if (!shares_.empty()) ShareMemory();
  for (int v = 0; v < num_values_; ++v) {
    const Value& value = values_[v];
    profile_[value.step] += value.bytes;
    profile_[value.last + 1] -= value.bytes;
  }
  const int64_t room = budget_ - workspace_;
  int64_t live = 0, peak = -1, over = 0;
  double overflow = 0;
  int peak_step = 0;
  for (int step = 0; step < steps; ++step) {
    live += profile_[step];
    profile_[step] = live;
    if (live > peak) {
      peak = live;
      peak_step = step;
    }
    over = live - room;
    if (over > 0) overflow += static_cast<double>(over);
  }
  outcome->peak = peak + workspace_;
  outcome->overflow = overflow;
  outcome->peak_op = steps ? step_stage_[peak_step] : 0;
}

// Lets outputs take the memory of inputs, as MXNet's planner does (see storage.h): a value that
// shares has no bytes of its own, and the value whose memory it takes lives as long as both.
void Simulator::ShareMemory() {
  value_root_.resize(num_values_);
  taken_at_.assign(num_values_, -1);
  for (int v = 0; v < num_values_; ++v) value_root_[v] = v;
  for (const Share& share : shares_) {
    const int root = value_root_[share.from];
    Value& to = values_[share.to];
    if (value_root_[share.to] != share.to || taken_at_[share.from] == share.step ||
        to.bytes != values_[root].bytes || to.bytes == 0 || to.last == share.step) {
      continue;
    }
    if (!share.identity && values_[root].last != share.step) continue;
    taken_at_[share.from] = share.step;
    value_root_[share.to] = root;
    values_[root].last = std::max(values_[root].last, to.last);
    to.bytes = 0;
  }
}

Outcome Simulator::Evaluate(double cost_limit) {
  Outcome outcome;
  outcome.valid = RunAll(cost_limit);
  work_ += num_steps() + num_ops() / 4 + 60;  // what an evaluation of nothing would cost
  outcome.cost = cost_;
  if (outcome.valid) Measure(&outcome);
  return outcome;
}

Outcome Simulator::EvaluateInto(Trace* trace) {
  *trace = Trace();
  trace_ = trace;
  const Outcome outcome = Evaluate();
  trace_ = nullptr;
  trace->ops.assign(step_op_.begin(), step_op_.begin() + num_steps_);
  trace->clones.assign(step_clone_.begin(), step_clone_.begin() + num_steps_);
  for (int op : trace->ops) trace->implementations.push_back(implementation_[op]);
  trace->source_begin.push_back(static_cast<int>(trace->sources.size()));
  return outcome;
}

void Simulator::RecordSources(int op) {
  const Implementation& impl = active(op);
  std::vector<int> makers;
  trace_->source_begin.push_back(static_cast<int>(trace_->sources.size()));
  for (size_t i = 0; i < impl.inputs.size(); ++i) {
    const int tensor = impl.inputs[i];
    const int maker = producer_[tensor];
    if (maker < 0) {
      trace_->sources.push_back(-1);
      continue;
    }
    const bool from_clone = !impl.ignored[i] && !kept_[tensor];
    trace_->sources.push_back(from_clone ? instance_[maker] : first_run_[maker]);
    if (from_clone) makers.push_back(maker);
  }
  if (impl.uses_state) makers.push_back(problem_.ops[op].state_of);
  std::sort(makers.begin(), makers.end());
  makers.erase(std::unique(makers.begin(), makers.end()), makers.end());
  for (int maker : makers) {
    const int number = step_clone_[instance_[maker]];
    if (number != 1) trace_->readers.emplace_back(maker, op, clones_[op], number);
  }
}

}  // namespace memonger
