#include "core/search/decisions.h"

#include <algorithm>

namespace memonger {

Decisions::Decisions(Simulator* simulator)
    : simulator_(simulator),
      num_gaps_(static_cast<int>(simulator->gaps().size())),
      num_variants_(static_cast<int>(simulator->problem().variants.size())),
      place_off_default_(num_gaps_ + num_variants_, -1) {
  for (int v = 0; v < num_variants_; ++v) simulator_->set_variant(v, false);
  for (int gap = 0; gap < num_gaps_; ++gap) {
    simulator_->set_choice(gap, static_cast<Choice>(Default(gap)));
    simulator_->set_advance(gap, -1);
  }
}

int Decisions::Get(int decision) const {
  if (is_gap(decision)) return simulator_->choice(decision);
  return simulator_->variant_on(decision - num_gaps_) ? 1 : 0;
}

int Decisions::Default(int decision) const {
  if (!is_gap(decision)) return 0;
  return Allowed(decision, kKeep) ? simulator_->default_choice(decision) : kDropThenRetain;
}

bool Decisions::Allowed(int decision, int value) const {
  if (!is_gap(decision)) return true;
  const Gap& gap = simulator_->gaps()[decision];
  if (value != kKeep || gap.trailing || simulator_->problem().pins[gap.op] != 2) return true;
  return simulator_->IsBackward(gap.begin) || !simulator_->IsBackward(gap.end);
}

void Decisions::Set(int decision, int value) {
  const int before = Get(decision);
  if (before == value || !Allowed(decision, value)) return;
  undo_.emplace_back(decision, before);
  if (is_gap(decision)) {
    simulator_->set_choice(decision, static_cast<Choice>(value));
  } else {
    const int number = decision - num_gaps_;
    if (value) {
      for (int other : simulator_->problem().variants[number].conflicts) {
        if (simulator_->variant_on(other)) {
          undo_.emplace_back(variant(other), 1);
          simulator_->set_variant(other, false);
        }
      }
    }
    simulator_->set_variant(number, value != 0);
  }
  const bool is_default = value == Default(decision);
  if (is_default && is_off_default(decision)) {
    const int place = place_off_default_[decision], last = off_default_.back();
    off_default_[place] = last;
    place_off_default_[last] = place;
    off_default_.pop_back();
    place_off_default_[decision] = -1;
  } else if (!is_default && !is_off_default(decision)) {
    place_off_default_[decision] = static_cast<int>(off_default_.size());
    off_default_.push_back(decision);
  }
}

void Decisions::SetAdvance(int gap, int op) {
  if (simulator_->advance(gap) == op) return;
  advance_undo_.emplace_back(gap, simulator_->advance(gap));
  simulator_->set_advance(gap, op);
}

void Decisions::Commit() {
  undo_.clear();
  advance_undo_.clear();
}

void Decisions::Undo() {
  std::vector<std::pair<int, int>> steps;
  steps.swap(undo_);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) Set(step->first, step->second);
  undo_.clear();
  for (auto step = advance_undo_.rbegin(); step != advance_undo_.rend(); ++step) {
    simulator_->set_advance(step->first, step->second);
  }
  advance_undo_.clear();
}

std::vector<int> Decisions::SortedOffDefault() const {
  std::vector<int> sorted = off_default_;
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

void Decisions::Load(const Solution& solution) {
  if (!solution.known) return LoadDefaults();  // stopped before there was any
  for (int v = 0; v < num_variants_; ++v) {
    if (!solution.variants[v]) Set(variant(v), 0);
  }
  for (int v = 0; v < num_variants_; ++v) {
    if (solution.variants[v]) Set(variant(v), 1);
  }
  for (int gap = 0; gap < num_gaps_; ++gap) {
    Set(gap, solution.choices[gap]);
    SetAdvance(gap, solution.advance[gap]);
  }
  Commit();
}

void Decisions::LoadDefaults() {
  for (int decision = 0; decision < size(); ++decision) Set(decision, Default(decision));
  for (int gap = 0; gap < num_gaps_; ++gap) SetAdvance(gap, -1);
  Commit();
}

Solution Decisions::Snapshot() const {
  Solution s;
  s.known = true;
  for (int gap = 0; gap < num_gaps_; ++gap) {
    s.choices.push_back(simulator_->choice(gap));
    s.advance.push_back(simulator_->advance(gap));
  }
  for (int v = 0; v < num_variants_; ++v) s.variants.push_back(simulator_->variant_on(v));
  return s;
}

}  // namespace memonger
