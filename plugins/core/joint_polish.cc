// Annealing of what is held itself: values made before they are needed, held for part of a gap.
#include <algorithm>
#include <cmath>

#include "joint_search.h"

namespace memonger {

// Makes a value held, or not, when stages from..to begin.
void JointSearch::Fill(int node, int from, int to, bool held) {
  from = std::max(from, 1);
  to = std::min(to, model_.num_stages());
  for (int t = from; t <= to; ++t) {
    if (state_.held(t, node) != held) state_.Toggle(t, node);
  }
}

// Whether the stage's backward node reads a value, or it is held after the stage.
bool JointSearch::KeptOn(int node, int stage) const {
  return state_.held(stage + 1, node) ||
         model_.backward(stage).variants[state_.plan().variants[stage]].needs_set.Has(node);
}

// A node that runs in a stage: its value is held instead, from where it was at hand before, or
// made in some stage between.
void JointSearch::ProposeEarlier(int node, int stage) {
  int available = stage - 1;
  while (available > 0 && !state_.runs(available).Has(node) && !state_.held(available + 1, node)) {
    --available;
  }
  if (random_.OneIn(3)) available += random_.Below(stage - available);
  Fill(node, available + 1, stage + (KeptOn(node, stage) ? 1 : 0), true);
}

// A node that runs in a stage: made in an earlier stage and held from there, where what it is made
// from is held until then. (A skip connection, say, that only serves to make a smaller value.)
void JointSearch::ProposeCarried(int node, int stage) {
  if (stage < 2) return;
  const int made = 1 + random_.Below(stage - 1);
  for (int input : model_.node(node).variants[0].needs) {
    int available = made;
    while (available > 0 && !state_.held(available, input) && !state_.runs(available).Has(input)) {
      --available;
    }
    Fill(input, available + 1, made, true);
  }
  Fill(node, made + 1, stage + (KeptOn(node, stage) ? 1 : 0), true);
}

// A value held when a stage begins: dropped between the reads around it.
void JointSearch::ProposeDrop(int node, int stage) {
  const int num_stages = model_.num_stages();
  // The backward node of stage t reads what is held when the next stage begins.
  const auto backward_reads = [&](int t) {
    return t >= 1 && t < num_stages && model_.backward(t)
        .variants[state_.plan().variants[t]].needs_set.Has(node);
  };
  const auto forward_reads = [&](int t) {
    if (t < 1 || t >= num_stages) return false;
    const NodeSet& consumers = model_.consumers(node);
    for (int w = 0; w < model_.num_words(); ++w) {
      if (consumers.word[w] & state_.runs(t).word[w]) return true;
    }
    return false;
  };
  if (backward_reads(stage - 1)) {
    stage += random_.OneIn(2) ? 1 : -1;
    if (stage < 1 || stage > num_stages || !state_.held(stage, node)) return;
  }
  int from = stage, to = stage;
  while (from > 1 && state_.held(from - 1, node) && !forward_reads(from - 1) &&
         !backward_reads(from - 2)) {
    --from;
  }
  const auto extend = [&] {
    while (to < num_stages && state_.held(to + 1, node) && !forward_reads(to) &&
           !backward_reads(to)) {
      ++to;
    }
  };
  extend();
  const int kind = random_.Below(6);
  if (kind == 0) from += random_.Below(to - from + 1);
  if (kind == 1) to -= random_.Below(to - from + 1);
  if (kind >= 4 && to < num_stages && state_.held(to + 1, node)) {  // the next stretch as well
    ++to;
    extend();
  }
  Fill(node, from, to, false);
}

// Another variant of the stage's backward node; what it needs may be held in place of what the old
// one needed.
void JointSearch::ProposeVariant(int stage) {
  const JointNode& node = model_.backward(stage);
  const int count = model_.num_variants(stage), before = state_.plan().variants[stage];
  const int after = (before + 1 + random_.Below(count - 1)) % count;
  const int how = random_.Below(3);
  const NodeSet& old_needs = node.variants[before].needs_set;
  int from = stage + 1;
  for (int v : node.variants[before].needs) {
    if (how == 0 || node.variants[after].needs_set.Has(v) || !state_.held(stage + 1, v)) continue;
    from = stage + 1;
    while (from > 1 && state_.held(from - 1, v) && !state_.runs(from - 1).Has(v)) --from;
    if (how == 2) Fill(v, from, stage + 1, false);
  }
  state_.SetVariant(stage, after);
  for (int v : node.variants[after].needs) {
    if (how == 0 || old_needs.Has(v)) continue;
    int available = stage;
    while (available > 0 && available > from - 1 && !state_.runs(available).Has(v) &&
           !state_.held(available + 1, v)) {
      --available;
    }
    Fill(v, available + 1, stage + 1, true);
  }
}

// An input of a value, or something made from it, is held in its place.
void JointSearch::ProposeExchange(int node, int stage) {
  int other = -1, seen = 0;
  for (int v = 0; v < model_.num_forward(); ++v) {
    if (!model_.inputs(node).Has(v) && !model_.consumers(node).Has(v)) continue;
    if (random_.OneIn(++seen)) other = v;
  }
  if (other < 0) return;
  int from = stage, to = stage;
  while (from > 1 && state_.held(from - 1, node) && !state_.held(from - 1, other)) --from;
  while (to < model_.num_stages() && state_.held(to + 1, node) && !state_.held(to + 1, other)) {
    ++to;
  }
  if (random_.OneIn(3)) from += random_.Below(stage - from + 1);
  if (random_.OneIn(3)) to -= random_.Below(to - stage + 1);
  Fill(node, from, to, false);
  Fill(other, from, to, true);
}

// Values that are made in a stage and held: made in an earlier or a later one, together.
void JointSearch::ProposeShift(int stage) {
  const int by = 1 + random_.Below(random_.OneIn(3) ? 8 : 2);
  const bool earlier = random_.OneIn(2);
  int low = 0, high = model_.num_forward();
  if (random_.OneIn(2)) {
    low = random_.Below(high);
    high = std::min(high, low + 1 + random_.Below(12));
  }
  for (int v = low; v < high; ++v) {
    if (!state_.held(stage + 1, v) || state_.held(stage, v)) continue;
    Fill(v, earlier ? stage - by + 1 : stage + 1, earlier ? stage : stage + by, earlier);
  }
}

// Neighbours in the forward order: one of them held for a while, or none.
void JointSearch::ProposeBlock(int stage) {
  int node = -1, seen = 0;
  for (int v = 0; v < model_.num_forward(); ++v) {
    if (state_.held(stage, v) && random_.OneIn(++seen)) node = v;
  }
  if (node < 0) return;
  int from = stage, to = stage;
  while (from > 1 && state_.held(from - 1, node)) --from;
  while (to < model_.num_stages() && state_.held(to + 1, node)) ++to;
  const int low = std::max(0, node - random_.Below(6));
  const int high = std::min(model_.num_forward() - 1, node + random_.Below(6));
  const int chosen = random_.OneIn(4) ? -1 : low + random_.Below(high - low + 1);
  if (random_.OneIn(3)) from += random_.Below(stage - from + 1);
  if (random_.OneIn(3)) to -= random_.Below(to - stage + 1);
  for (int v = low; v <= high; ++v) Fill(v, from, to, v == chosen);
}

void JointSearch::ProposeHeld() {
  const int stage = 1 + random_.Below(model_.num_stages() - 1);
  if (random_.OneIn(6) && model_.num_variants(stage) > 1) {
    return ProposeVariant(stage);
  }
  if (random_.OneIn(10)) return ProposeShift(stage);
  if (random_.OneIn(12)) return ProposeBlock(stage);
  // Any node at random whose state in this stage leaves something to propose.
  for (int tries = 0; tries < 40; ++tries) {
    const int node = random_.Below(model_.num_forward());
    if (state_.runs(stage).Has(node)) {
      return random_.OneIn(2) ? ProposeCarried(node, stage) : ProposeEarlier(node, stage);
    }
    if (random_.OneIn(12) && state_.held(stage, node)) return ProposeExchange(node, stage);
    if (random_.OneIn(3) && state_.held(stage, node)) return ProposeDrop(node, stage);
    if (random_.OneIn(200)) {
      return Fill(node, stage, stage + random_.Below(1 + model_.num_stages() / 8),
                  !state_.held(stage, node));
    }
  }
}

void JointSearch::Polish(double hot, double cold, double until) {
  const double from = Progress();
  if (from >= until || !have_run_) return;
  for (int t = 0; t <= model_.num_stages(); ++t) {
    int64_t size = 0;
    for (int v = 0; v < model_.num_forward(); ++v) {
      if (plan_of_run_.held[t].Has(v)) size += model_.node(v).size;
    }
    state_.SetHeld(t, plan_of_run_.held[t], size);
    if (t < model_.num_stages()) state_.SetVariant(t, plan_of_run_.variants[t]);
  }
  JointOutcome current = state_.Evaluate();
  Take();
  const auto value_of = [&](const JointOutcome& o) {
    return static_cast<double>(o.cost) + weight_ * static_cast<double>(o.overflow);
  };
  double value = value_of(current), heat = hot;
  for (int64_t move = 1;; ++move) {
    if (move % 64 == 1) {
      const double progress = Progress();
      if (progress >= until) return;
      heat = hot * std::pow(cold / hot, (progress - from) / (until - from));
    }
    for (int i = 1 + (random_.OneIn(3) ? 1 : 0) + (random_.OneIn(8) ? 1 : 0); i > 0; --i) {
      ProposeHeld();
    }
    ++evaluations_;
    const JointOutcome next = state_.Evaluate();
    const double next_value = value_of(next);
    if (next_value <= value - heat * std::log(random_.Unit())) {
      Take();
      current = next;
      value = next_value;
      if (next.fits() && (!best_of_run_.fits() || next.cost < best_of_run_.cost)) Offer(false);
    } else {
      state_.Undo();
    }
    if (move % 500 == 0) {
      weight_ *= current.overflow > 0 ? 1.0123 : 0.995;
      value = value_of(current);
    }
  }
}

}  // namespace memonger
