// Plans of the joint model, evaluated a few stages at a time; and decisions, unrolled into plans.
#include <algorithm>

#include "joint_search.h"

namespace memonger {

JointState::JointState(const JointModel& model)
    : model_(model), sizes_(model.num_stages() + 1), stages_(model.num_stages()),
      runs_(model.num_stages()), dirty_(model.num_stages(), 0),
      held_remembered_(model.num_stages() + 1, 0) {
  plan_.held.resize(model.num_stages() + 1);
  plan_.variants.resize(model.num_stages());
  for (int t = 0; t < model.num_stages(); ++t) Dirty(t);
  Evaluate();
  Commit();
}

void JointState::Dirty(int stage) {
  if (stage < 0 || stage >= model_.num_stages() || dirty_[stage]) return;
  dirty_[stage] = 1;
  dirty_list_.push_back(stage);
}

void JointState::RememberHeld(int t) {
  if (held_remembered_[t]) return;
  held_remembered_[t] = 1;
  held_undo_.push_back({t, plan_.held[t], sizes_[t]});
}

void JointState::SetHeld(int t, const NodeSet& held, int64_t size) {
  bool same = true;
  for (int w = 0; w < model_.num_words(); ++w) {
    same = same && plan_.held[t].word[w] == held.word[w];
  }
  if (same) return;
  RememberHeld(t);
  plan_.held[t] = held;
  sizes_[t] = size;
  Dirty(t - 1);
  Dirty(t);
}

void JointState::Toggle(int t, int node) {
  RememberHeld(t);
  NodeSet& held = plan_.held[t];
  if (held.Has(node)) {
    held.Remove(node);
    sizes_[t] -= model_.node(node).size;
  } else {
    held.Add(node);
    sizes_[t] += model_.node(node).size;
  }
  Dirty(t - 1);
  Dirty(t);
}

void JointState::SetVariant(int stage, int variant) {
  if (plan_.variants[stage] == variant) return;
  variant_undo_.emplace_back(stage, plan_.variants[stage]);
  plan_.variants[stage] = variant;
  Dirty(stage);
}

const JointOutcome& JointState::Evaluate() {
  for (int t : dirty_list_) {
    dirty_[t] = 0;
    stage_undo_.push_back({t, stages_[t], runs_[t]});
    total_.cost -= stages_[t].cost;
    total_.overflow -= stages_[t].overflow;
    stages_[t] = model_.Evaluate(t, plan_.held[t], sizes_[t], plan_.held[t + 1], sizes_[t + 1],
                                 plan_.variants[t], &runs_[t], nullptr);
    total_.cost += stages_[t].cost;
    total_.overflow += stages_[t].overflow;
  }
  work_ += 1 + static_cast<int64_t>(dirty_list_.size());
  dirty_list_.clear();
  return total_;
}

void JointState::Commit() {
  for (const HeldUndo& undo : held_undo_) held_remembered_[undo.t] = 0;
  held_undo_.clear();
  variant_undo_.clear();
  stage_undo_.clear();
  before_ = total_;
}

void JointState::Undo() {
  for (int t : dirty_list_) dirty_[t] = 0;
  dirty_list_.clear();
  for (const HeldUndo& undo : held_undo_) {
    held_remembered_[undo.t] = 0;
    plan_.held[undo.t] = undo.held;
    sizes_[undo.t] = undo.size;
  }
  while (!variant_undo_.empty()) {
    plan_.variants[variant_undo_.back().first] = variant_undo_.back().second;
    variant_undo_.pop_back();
  }
  while (!stage_undo_.empty()) {
    stages_[stage_undo_.back().t] = stage_undo_.back().outcome;
    runs_[stage_undo_.back().t] = stage_undo_.back().runs;
    stage_undo_.pop_back();
  }
  held_undo_.clear();
  total_ = before_;
}

JointDecisions::JointDecisions(const JointModel& model)
    : model_(model), first_gap_(model.num_forward()), variant_item_(model.num_stages(), -1),
      readers_(model.num_stages()), use_stages_(model.num_forward()),
      open_(model.num_forward()), ran_in_(model.num_forward()), gap_(model.num_forward()),
      begins_(model.num_stages() + 2), ends_(model.num_stages() + 2) {
  for (int t = 1; t < model.num_stages(); ++t) {
    NodeSet all;
    for (const JointVariant& variant : model.backward(t).variants) {
      for (int need : variant.needs) all.Add(need);
    }
    for (int v = 0; v < model.num_forward(); ++v) {
      if (!all.Has(v)) continue;
      readers_[t].push_back(v);
      use_stages_[v].push_back(t);
    }
  }
  for (int v = 0; v < model.num_forward(); ++v) {
    first_gap_[v] = num_items();
    int begin = 0;
    for (size_t k = 0; k <= use_stages_[v].size(); ++k) {
      const int end = k < use_stages_[v].size() ? use_stages_[v][k] : model.num_stages();
      items_.push_back({v, begin, end, 3, 0});
      begin = end;
    }
  }
  num_gaps_ = num_items();
  for (int t = 1; t < model.num_stages(); ++t) {
    const JointNode& node = model.backward(t);
    const int count = model.num_variants(t);
    if (count < 2) continue;
    int usual = 0;
    for (int i = 1; i < count && !node.is_convolution; ++i) {
      if (node.time[i] < node.time[usual]) usual = i;
    }
    variant_item_[t] = num_items();
    items_.push_back({t, 0, t, count, usual});
  }
  values_ = Defaults();
}

std::vector<int> JointDecisions::Defaults() const {
  std::vector<int> values;
  for (const Item& item : items_) values.push_back(item.usual);
  return values;
}

int JointDecisions::GapBefore(int node, int stage) const {
  const auto& stages = use_stages_[node];
  const auto found = std::lower_bound(stages.begin(), stages.end(), stage);
  if (found == stages.end() || *found != stage) return -1;
  return first_gap_[node] + static_cast<int>(found - stages.begin());
}

int JointDecisions::GapAt(int node, int stage) const {
  const auto& stages = use_stages_[node];
  return first_gap_[node] +
         static_cast<int>(std::lower_bound(stages.begin(), stages.end(), stage) - stages.begin());
}

void JointDecisions::Open(int node, int stage) {
  open_[node] = static_cast<int>(spans_.size());
  spans_.push_back({node, stage, stage});
}

// Makes a value available to nodes that run in a stage.
void JointDecisions::Need(int node, int stage) {
  if (ran_in_[node] == stage) return;
  if (open_[node] >= 0) {
    spans_[open_[node]].last = std::max(spans_[open_[node]].last, stage);
    return;
  }
  ran_in_[node] = stage;
  const JointNode& made = model_.node(node);
  if (made.parent >= 0 && ran_in_[made.parent] != stage) {
    // The parent of a mask has to run even if its own value is held.
    const int span = open_[made.parent];
    open_[made.parent] = -1;
    Need(made.parent, stage);
    open_[made.parent] = span;
  }
  for (int input : made.variants[0].needs) {
    if (input != node) Need(input, stage);
  }
  running_.push_back(node);
}

void JointDecisions::Unroll(JointState* state) {
  const int num_stages = model_.num_stages(), num_forward = model_.num_forward();
  spans_.clear();
  for (auto& list : begins_) list.clear();
  for (auto& list : ends_) list.clear();
  for (int v = 0; v < num_forward; ++v) {
    open_[v] = -1;
    gap_[v] = 0;
    ran_in_[v] = model_.node(v).is_mask ? -1 : 0;
    if (values_[first_gap_[v]] == 0) Open(v, 0);
  }
  for (int t = 1; t < num_stages; ++t) {
    const int variant = variant_item_[t] < 0 ? 0 : values_[variant_item_[t]];
    state->SetVariant(t, variant);
    running_.clear();
    for (int need : model_.backward(t).variants[variant].needs) {
      if (open_[need] >= 0 && ran_in_[need] != t) {
        spans_[open_[need]].last = std::max(spans_[open_[need]].last, t + 1);
      } else {
        Need(need, t);
      }
    }
    for (int v : readers_[t]) {  // the next gap begins
      const int choice = values_[first_gap_[v] + ++gap_[v]];
      if (choice != 0) {
        open_[v] = -1;
      } else if (open_[v] < 0 && ran_in_[v] == t) {
        Open(v, t);
      }
    }
    for (int v : running_) {
      if (open_[v] >= 0) continue;
      if (gap_[v] > 0 && use_stages_[v][gap_[v] - 1] == t) continue;
      if (values_[first_gap_[v] + gap_[v]] != 2) Open(v, t);
    }
  }
  for (size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = spans_[i];
    if (span.last <= span.first) continue;
    begins_[span.first + 1].push_back(span.node);
    ends_[span.last + 1].push_back(span.node);
  }
  NodeSet held;
  int64_t size = 0;
  for (int t = 1; t <= num_stages; ++t) {
    for (int v : ends_[t]) {
      held.Remove(v);
      size -= model_.node(v).size;
    }
    for (int v : begins_[t]) {
      held.Add(v);
      size += model_.node(v).size;
    }
    state->SetHeld(t, held, size);
  }
}

}  // namespace memonger
