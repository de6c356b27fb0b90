#include "core/simulator.h"

#include <algorithm>
#include <cmath>
#include <set>

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
  double time = 0;
  for (const Op& op : problem.ops) time += op.implementations[0].time;
  if (time > 0) ticks_per_second_ = std::ldexp(1.0, 46) / time;
  first_backward_ = n;
  for (int op = n - 1; op >= 0; --op) {
    if (problem.ops[op].is_backward) first_backward_ = op;
  }
  for (int op = 0; op < n; ++op) {
    Activate(op, 0);
    can_rerun_.push_back(problem.ops[op].can_rerun && problem.pins[op] != 1);
  }
  max_steps_ = 12 * n + 1000;
  stages_.resize(n);
  looks_.resize(n);
  at_hand_.resize(n);
  looked_at_.assign(n, 0);
  ran_.assign(n, 0);
  run_here_.assign(n, -1);
  free_runs_.resize(n);
  for (int op = 0; op < n; ++op) AddRun(op);
  dirty_.Resize(n);
  sharing_.Resize(n);
  for (int stage = 0; stage < n; ++stage) dirty_.Add(stage);
  FindUses();
  FindGaps();
  advance_.assign(gaps_.size(), -1);
  for (size_t tensor = 0; tensor < problem.tensor_bytes.size(); ++tensor) {
    if (problem.tensor_is_output[tensor]) outputs_.push_back(static_cast<int>(tensor));
  }
  for (int op = 0; op < n && problem.host_budget >= 0; ++op) {
    std::set<int> made;
    for (const Implementation& impl : problem.ops[op].implementations) {
      for (int tensor : impl.outputs) {
        if (problem.host_bytes[tensor]) made.insert(tensor);
      }
    }
    for (int tensor : made) host_outputs_.emplace_back(op, tensor);
  }
  for (const Op& op : problem.ops) {
    workspace_ = std::max(workspace_, op.implementations[0].workspace_bytes);
  }
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
    std::vector<int> used;
    for (const Implementation& impl : problem_.ops[op].implementations) {
      for (int tensor : impl.reads) {
        for (int maker : makers[tensor]) {
          // A value is read from the first run only as long as its maker has no variant.
          const bool kept =
              problem_.tensor_is_kept[tensor] && problem_.ops[maker].implementations.size() == 1;
          if (maker < op && !kept) used.push_back(maker);
        }
      }
    }
    for (const Implementation& impl : problem_.ops[op].implementations) {
      if (impl.uses_state) used.push_back(problem_.ops[op].state_of);
    }
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    for (int maker : used) {
      uses_[maker].push_back(op);
      used_by_op_[op].emplace_back(maker, static_cast<int>(uses_[maker].size()));
    }
  }
}

void Simulator::FindGaps() {
  const int n = num_ops();
  for (int op = 0; op < n; ++op) {
    const std::vector<int>& uses = uses_[op];
    first_gap_.push_back(static_cast<int>(choices_.size()));
    // Forward ops read what the first run made: up to the last one it is kept.
    int last_forward = -1;
    for (int use : uses) {
      if (!IsBackward(use)) last_forward = use;
    }
    for (int k = 0; k <= static_cast<int>(uses.size()); ++k) {
      Gap gap;
      gap.op = op;
      gap.index = k;
      gap.trailing = k == static_cast<int>(uses.size());
      gap.begin = k ? uses[k - 1] : op;
      gap.end = gap.trailing ? n : uses[k];
      const bool forward_only = gap.end <= last_forward;
      // In a gap between neighbours nothing can be gained but what the first one takes in place.
      const bool free = can_rerun_[op] && !forward_only && !(gap.trailing && uses.empty()) &&
                        (gap.end - gap.begin > 1 || MayTake(gap.begin, op));
      // What must not run again is kept for clones that may read it; unread, that costs nothing.
      char choice = gap.trailing && can_rerun_[op] ? kDropTransient : kKeep;
      if (free && problem_.pins[op] == 2 && !IsBackward(gap.begin) && IsBackward(gap.end) &&
          choice == kKeep) {
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
  hot.ticks = std::llround(impl.time * ticks_per_second_);
  hot.stream = problem_.ops[op].stream;
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
  relabelled_ = true;
  for (const auto& choice : problem_.variants[variant].choices) {
    Activate(choice.first, on ? choice.second : 0);
    dirty_.Add(choice.first);
    MarkLooks(choice.first, 0, num_ops());
  }
  workspace_ = 0;
  for (int op = 0; op < num_ops(); ++op) {
    workspace_ = std::max(workspace_, active(op).workspace_bytes);
  }
}

void Simulator::set_choice(int gap, Choice choice) {
  char& now = choices_[slot_of_gap_[gap]];
  if (now == choice) return;
  now = choice;
  HoldFrom(gap);
}

void Simulator::set_advance(int gap, int op) {
  if (advance_[gap] == op) return;
  advance_[gap] = op;
  HoldFrom(gap);
}

void Simulator::HoldFrom(int gap) {
  const int slot = slot_of_gap_[gap];
  int from = 0;
  if (choices_[slot] == kDropThenRetain) from = gaps_[gap].begin + 1;
  if (choices_[slot] == kDropTransient) {
    from = advance_[gap] >= 0 ? advance_[gap] : num_ops() + 1;
  }
  if (held_from_[slot] == from) return;
  held_from_[slot] = from;
  MarkLooks(gaps_[gap].op, gaps_[gap].begin, gaps_[gap].end);
}

Outcome Simulator::Evaluate(double cost_limit) {
  Outcome outcome;
  outcome.valid = UpdateStages();
  outcome.cost = static_cast<double>(ticks_) / ticks_per_second_;
  outcome.valid = outcome.valid && outcome.cost <= cost_limit;
  if (outcome.valid && problem_.num_streams > 1) {
    outcome.cost = static_cast<double>(EndOfLastStream()) / ticks_per_second_;
    outcome.valid = outcome.cost <= cost_limit;
  }
  if (outcome.valid) Measure(&outcome);
  return outcome;
}

Outcome Simulator::EvaluateInto(Trace* trace) {
  *trace = Trace();
  Outcome outcome = Evaluate();
  if (!outcome.valid) return outcome;
  WriteTrace(trace);
  outcome.cost = EndOfLastStream(*trace);
  return outcome;
}

}  // namespace memonger
