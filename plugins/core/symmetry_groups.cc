// Decisions for repeated blocks at once: what stands in the same place of every block is dropped,
// or run as another variant, together, a whole group or the first part of it.
//
// Networks of thousands of ops mostly repeat a block. One decision at a time they take longer to
// bring within a budget than there is time for; by groups it takes a few hundred evaluations. In
// smaller networks it is the start of searches that end nearer to the bound.
#include <algorithm>
#include <cstring>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "core/search.h"

namespace memonger {

namespace {

// How far from an op its neighbours tell it apart from others, in reads.
const int kNear = 2;
// Parts of a group that are dropped at once: one in so many, from the first.
const int kParts[] = {1, 16};
// Groups that are decided as such; those left out have the fewest bytes.
const size_t kMostGroups = 1000;
// Where values are dropped down to little inputs: a little one has one so many-th of the bytes, is
// at most so many ops away, and what takes so many times as long to make is kept like one.
const int64_t kLittle = 8;
const int kDeepest = 4;
const double kSlow = 4;

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15ull + (a << 6) + (a >> 2))) * 0xBF58476D1CE4E5B9ull;
  x ^= x >> 31;
  return x * 0x94D049BB133111EBull;
}

uint64_t Bits(double number) {
  uint64_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  return bits;
}

// A number for what each op does, and what the ops around it do (colour refinement of Weisfeiler
// and Leman 1968, two rounds).
std::vector<uint64_t> Roles(const Problem& problem) {
  const size_t n = problem.ops.size();
  std::vector<int> maker(problem.tensor_bytes.size(), -1);
  std::vector<uint64_t> roles(n);
  for (size_t op = 0; op < n; ++op) {
    const Implementation& impl = problem.ops[op].implementations[0];
    roles[op] = Mix(Bits(impl.time), problem.ops[op].is_backward);
    for (int tensor : impl.outputs) {
      maker[tensor] = static_cast<int>(op);
      roles[op] = Mix(roles[op], static_cast<uint64_t>(problem.tensor_bytes[tensor]));
    }
  }
  for (int round = 0; round < kNear; ++round) {
    std::vector<uint64_t> next = roles;
    for (size_t op = 0; op < n; ++op) {
      for (int tensor : problem.ops[op].implementations[0].reads) {
        if (maker[tensor] < 0) continue;
        next[op] += Mix(roles[maker[tensor]], 1);
        next[maker[tensor]] += Mix(roles[op], 2);
      }
    }
    for (size_t op = 0; op < n; ++op) roles[op] = Mix(next[op], 3);
  }
  return roles;
}

}  // namespace

// Decisions that stand in the same place of repeated blocks, the groups with the most bytes first.
void Search::FindGroups() {
  const Problem& problem = simulator_->problem();
  const std::vector<uint64_t> roles = Roles(problem);
  std::map<std::pair<uint64_t, int>, std::vector<int>> groups;
  const int first_backward = simulator_->first_backward();
  trailing_gap_.assign(problem.ops.size(), -1);
  crossing_gap_.assign(problem.ops.size(), -1);
  bytes_made_.clear();  // where there are no groups this is called again
  for (const Op& op : problem.ops) {
    bytes_made_.push_back(0);
    for (int tensor : op.implementations[0].outputs) {
      bytes_made_.back() += problem.tensor_bytes[tensor];
    }
  }
  for (int gap = 0; gap < num_gaps_; ++gap) {
    const Gap& g = simulator_->gaps()[gap];
    const int place = g.trailing ? 3 : g.begin < first_backward && g.end >= first_backward;
    groups[{roles[g.op], place}].push_back(gap);
    if (place == 3) trailing_gap_[g.op] = gap;
    if (place == 1) crossing_gap_[g.op] = gap;
  }
  for (int v = 0; v < num_variants_; ++v) {
    if (problem.variants[v].choices.empty()) continue;
    uint64_t role = 0;
    for (const auto& choice : problem.variants[v].choices) {
      const Implementation& how = problem.ops[choice.first].implementations[choice.second];
      role += Mix(roles[choice.first], Bits(how.runs ? how.time : 0));
    }
    groups[{role, 2}].push_back(num_gaps_ + v);
  }
  for (auto& group : groups) groups_.push_back(std::move(group.second));
  const auto weight = [&](const std::vector<int>& group) {
    const int op = is_gap(group[0]) ? simulator_->gaps()[group[0]].op
                                    : problem.variants[group[0] - num_gaps_].choices[0].first;
    return bytes_made_[op] * static_cast<int64_t>(group.size());
  };
  std::stable_sort(
      groups_.begin(), groups_.end(),
      [&](const std::vector<int>& a, const std::vector<int>& b) { return weight(a) > weight(b); });
  if (groups_.size() > kMostGroups) groups_.resize(kMostGroups);
}

// Drops the value of a gap, and what is needed to make it again at little cost.
void Search::Drop(int decision, Way way) {
  Set(decision, way.value);
  if (way.basis != kNothing && is_gap(decision)) {
    const int op = simulator_->gaps()[decision].op;
    KeepBasis(op, way.value, way.basis == kInputs ? 0 : bytes_made_[op] / kLittle, kDeepest);
  }
}

// Keeps what an op reads for a later run of it; values above so many bytes are dropped as well, and
// what they are made from is kept. 0: no such limit.
void Search::KeepBasis(int op, int value, int64_t most_bytes, int depth) {
  for (int tensor : simulator_->active(op).reads) {
    const int maker = simulator_->producer(tensor);
    if (maker < 0) continue;
    const bool slow = simulator_->active(maker).time > kSlow * simulator_->active(op).time;
    if (depth == 0 || most_bytes == 0 || bytes_made_[maker] <= most_bytes || slow) {
      if (trailing_gap_[maker] >= 0) Set(trailing_gap_[maker], kKeep);
    } else {
      if (crossing_gap_[maker] >= 0) Set(crossing_gap_[maker], value);
      KeepBasis(maker, value, most_bytes, depth - 1);
    }
  }
}

// Makes the decisions fit by groups: the part of one with the most overflow removed per cost added,
// until nothing overflows; variants too, where that is asked for. What a part removes is worked out
// anew only when it comes first.
bool Search::RepairGroups(Outcome* current, bool variants, int64_t work_end) {
  struct Part {
    double score;
    int round;  // of the last evaluation
    int group, parts;
    Way way;
    Outcome outcome;
    bool operator<(const Part& other) const {
      return std::tie(score, other.group, other.parts, other.way.value, other.way.basis) <
             std::tie(other.score, group, parts, way.value, way.basis);
    }
  };
  const Way kWays[] = {{1, kNothing}, {1, kInputs}, {1, kLittleInputs}, {2, kNothing}};
  const double endless = std::numeric_limits<double>::infinity();
  if (groups_.empty()) FindGroups();
  std::priority_queue<Part> queue;
  std::vector<Part> useless;
  for (size_t group = 0; group < groups_.size(); ++group) {
    const int first = groups_[group][0];
    if (is_gap(first) ? simulator_->gaps()[first].trailing : !variants) continue;
    for (int parts : kParts) {
      if (parts > static_cast<int>(groups_[group].size())) break;
      for (const Way& way : kWays) {
        useless.push_back({endless, -1, static_cast<int>(group), parts, way, Outcome()});
        if (!is_gap(first)) break;
      }
    }
  }
  int round = 0, useless_since = -1;
  while (current->overflow > 0 && !OutOf(work_end)) {
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
    const std::vector<int>& group = groups_[part.group];
    int count = static_cast<int>(group.size()) / part.parts;
    for (size_t i = 0; i < group.size() && count > 0; ++i) {
      if (Get(group[i]) != Default(group[i])) continue;
      Drop(group[i], part.way);
      --count;
    }
    if (undo_.empty()) continue;
    if (part.round == round) {
      Commit();
      queue.push(part);
      *current = part.outcome;
      ++round;
      continue;
    }
    part.outcome = Evaluate(best_.feasible ? std::max(best_.cost, current->cost) : endless);
    Undo();
    part.round = round;
    part.score = 0;
    const double gain = part.outcome.valid ? current->overflow - part.outcome.overflow : 0;
    if (gain > 0) {
      part.score = gain * (0.8 + 0.4 * random_.Unit()) /
                   (std::max(part.outcome.cost - current->cost, 0.0) + 1e-7 * base_cost_);
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
void Search::PruneGroups(Outcome* current, int64_t work_end) {
  size_t longest = 1;
  for (const auto& group : groups_) longest = std::max(longest, group.size());
  for (size_t parts = 1; parts <= longest; parts *= 2) {
    for (const auto& group : groups_) {
      if (parts > group.size()) continue;
      for (size_t part = parts; part > 0; --part) {
        if (OutOf(work_end)) return;
        const size_t begin = (part - 1) * group.size() / parts, end = part * group.size() / parts;
        for (int value : {Default(group[0]), is_gap(group[0]) ? static_cast<int>(kKeep) : 1}) {
          for (size_t i = begin; i < end; ++i) Set(group[i], value);
          if (undo_.empty()) continue;
          const Outcome o = Evaluate(current->cost);
          if (Feasible(o) && o.cost < current->cost) {
            *current = o;
            Commit();
          } else {
            Undo();
          }
        }
      }
    }
  }
}

// Makes the decisions fit by groups, one by one where that does not do, and takes back what need
// not be.
void Search::FitGroups(Outcome* current, bool variants, int64_t repair_end, int64_t work_end) {
  *current = Evaluate();
  if (!current->valid) return;
  if (RepairGroups(current, variants, repair_end) || Repair(current, repair_end)) {
    PruneGroups(current, work_end);
  }
  Offer(*current);
}

}  // namespace memonger
