// Decisions for repeated blocks at once: what stands in the same place of every block is dropped,
// or run as another variant, together, a whole group or the first part of it.
//
// Networks of thousands of ops mostly repeat a block. One decision at a time they take longer to
// bring within a budget than there is time for; by groups it takes a few hundred evaluations. In
// smaller networks it is the start of searches that end nearer to the bound.
#include <algorithm>
#include <queue>
#include <tuple>
#include <vector>

#include "core/search/steps.h"

namespace memonger {

namespace {

// Parts of a group that are dropped at once: one in so many, from the first.
const int kParts[] = {1, 16};
// Where values are dropped down to little inputs: a little one has at most one so many-th of the
// bytes.
const int64_t kLittle = 8;
// The same: it is at most so many ops away.
const int kDeepest = 4;
// The same: what takes so many times as long to make as the value is kept like a little one.
const double kSlow = 4;
// Scores are multiplied at random, by at least this.
const double kLeastNoise = 0.8;
// What the largest of these factors is beyond the least.
const double kNoise = 0.4;
// Time added that counts as none, as a share of the step's.
const double kNoTime = 1e-7;

// What to keep for making a dropped value again.
enum Basis { kNothing, kInputs, kLittleInputs };

// How a group is dropped: a Choice, or whether a variant is in use.
struct Change {
  int value;
  Basis basis;
};

void KeepBasis(Search* search, int op, int value, int64_t most_bytes, int depth);

// Drops the value of a gap, and what is needed to make it again at little cost.
void Drop(Search* search, int decision, Change change) {
  Decisions& decisions = search->decisions;
  decisions.Set(decision, change.value);
  if (change.basis != kNothing && decisions.is_gap(decision)) {
    const int op = search->simulator->gaps()[decision].op;
    KeepBasis(search, op, change.value,
              change.basis == kInputs ? 0 : search->groups().bytes_made(op) / kLittle, kDeepest);
  }
}

// Keeps what an op reads for a later run of it; values above so many bytes are dropped as well, and
// what they are made from is kept. 0: no such limit.
void KeepBasis(Search* search, int op, int value, int64_t most_bytes, int depth) {
  Decisions& decisions = search->decisions;
  const Groups& groups = search->groups();
  for (int tensor : search->simulator->active(op).reads) {
    const int maker = search->simulator->producer(tensor);
    if (maker < 0) continue;
    const bool slow =
        search->simulator->active(maker).time > kSlow * search->simulator->active(op).time;
    if (depth == 0 || most_bytes == 0 || groups.bytes_made(maker) <= most_bytes || slow) {
      if (groups.trailing_gap(maker) >= 0) decisions.Set(groups.trailing_gap(maker), kKeep);
    } else {
      if (groups.crossing_gap(maker) >= 0) decisions.Set(groups.crossing_gap(maker), value);
      KeepBasis(search, maker, value, most_bytes, depth - 1);
    }
  }
}

// Makes the decisions fit by groups: the part of one with the most overflow removed per cost added,
// until nothing overflows; variants too, where that is asked for. What a part removes is worked out
// anew only when it comes first.
bool RepairGroups(Search* search, Outcome* current, bool variants, int64_t work_end) {
  Decisions& decisions = search->decisions;
  Target& target = search->target;
  const std::vector<std::vector<int>>& groups = search->groups().all();
  struct Part {
    double score;
    int round;  // of the last evaluation
    int group, parts;
    Change change;
    Outcome outcome;
    bool operator<(const Part& other) const {
      return std::tie(score, other.group, other.parts, other.change.value, other.change.basis) <
             std::tie(other.score, group, parts, change.value, change.basis);
    }
  };
  const Change changes[] = {{1, kNothing}, {1, kInputs}, {1, kLittleInputs}, {2, kNothing}};
  const double endless = std::numeric_limits<double>::infinity();
  std::priority_queue<Part> queue;
  std::vector<Part> useless;
  for (size_t group = 0; group < groups.size(); ++group) {
    const int first = groups[group][0];
    if (decisions.is_gap(first) ? search->simulator->gaps()[first].trailing : !variants) continue;
    for (int parts : kParts) {
      if (parts > static_cast<int>(groups[group].size())) break;
      for (const Change& change : changes) {
        useless.push_back({endless, -1, static_cast<int>(group), parts, change, Outcome()});
        if (!decisions.is_gap(first)) break;
      }
    }
  }
  int round = 0, useless_since = -1;
  while (current->overflow > 0 && !search->effort.OutOf(work_end)) {
    if (queue.empty()) {
      if (useless_since == round) return false;
      useless_since = round;
      for (Part& part : useless) {
        part.score = endless;
        queue.push(part);
      }
      useless.clear();
      if (queue.empty()) return false;
    }
    Part part = queue.top();
    queue.pop();
    const std::vector<int>& group = groups[part.group];
    int count = static_cast<int>(group.size()) / part.parts;
    for (size_t i = 0; i < group.size() && count > 0; ++i) {
      if (decisions.Get(group[i]) != decisions.Default(group[i])) continue;
      Drop(search, group[i], part.change);
      --count;
    }
    if (!decisions.has_changes()) continue;
    if (part.round == round) {
      decisions.Commit();
      queue.push(part);
      *current = part.outcome;
      ++round;
      continue;
    }
    part.outcome = target.Evaluate(
        target.best().feasible ? std::max(target.best().cost, current->cost) : endless);
    decisions.Undo();
    part.round = round;
    part.score = 0;
    const double gain = part.outcome.valid ? current->overflow - part.outcome.overflow : 0;
    if (gain > 0) {
      part.score =
          gain * (kLeastNoise + kNoise * search->random.Unit()) /
          (std::max(part.outcome.cost - current->cost, 0.0) + kNoTime * target.base_cost());
    }
    if (part.score > 0)
      queue.push(part);
    else
      useless.push_back(part);
  }
  return current->overflow <= 0;
}

// Takes changes back by whole groups, halves of them, and so on, where that is cheaper; keeps
// values behind their last use, and puts variants in use, in the same way.
void PruneGroups(Search* search, Outcome* current, int64_t work_end) {
  Decisions& decisions = search->decisions;
  Target& target = search->target;
  const std::vector<std::vector<int>>& groups = search->groups().all();
  size_t longest = 1;
  for (const auto& group : groups) longest = std::max(longest, group.size());
  for (size_t parts = 1; parts <= longest; parts *= 2) {
    for (const auto& group : groups) {
      if (parts > group.size()) continue;
      for (size_t part = parts; part > 0; --part) {
        if (search->effort.OutOf(work_end)) return;
        const size_t begin = (part - 1) * group.size() / parts, end = part * group.size() / parts;
        for (int value : {decisions.Default(group[0]),
                          decisions.is_gap(group[0]) ? static_cast<int>(kKeep) : 1}) {
          for (size_t i = begin; i < end; ++i) decisions.Set(group[i], value);
          if (!decisions.has_changes()) continue;
          const Outcome o = target.Evaluate(current->cost);
          if (target.Feasible(o) && o.cost < current->cost) {
            *current = o;
            decisions.Commit();
          } else {
            decisions.Undo();
          }
        }
      }
    }
  }
}

}  // namespace

void FitGroups(Search* search, Outcome* current, bool variants, int64_t repair_end,
               int64_t work_end) {
  *current = search->target.Evaluate();
  if (!current->valid) return;
  if (RepairGroups(search, current, variants, repair_end) || Repair(search, current, repair_end)) {
    PruneGroups(search, current, work_end);
  }
  search->target.Offer(*current);
}

}  // namespace memonger
