#include "core/search/groups.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace memonger {

namespace {

// How far from an op its neighbours tell it apart from others, in reads.
const int kNear = 2;
// Groups that are decided as such; those left out have the fewest bytes.
const size_t kMostGroups = 1000;
// Kinds of decisions that no group mixes.
enum Place { kInForward = 0, kCrossing = 1, kVariant = 2, kTrailing = 3 };

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

Groups::Groups(const Simulator& simulator, const Decisions& decisions)
    : trailing_gap_(simulator.num_ops(), -1), crossing_gap_(simulator.num_ops(), -1) {
  const Problem& problem = simulator.problem();
  const std::vector<uint64_t> roles = Roles(problem);
  std::map<std::pair<uint64_t, int>, std::vector<int>> groups;
  for (const Op& op : problem.ops) {
    bytes_made_.push_back(0);
    for (int tensor : op.implementations[0].outputs) {
      bytes_made_.back() += problem.tensor_bytes[tensor];
    }
  }
  for (int gap = 0; gap < decisions.num_gaps(); ++gap) {
    const Gap& g = simulator.gaps()[gap];
    const bool crosses = !simulator.IsBackward(g.begin) && simulator.IsBackward(g.end);
    const Place place = g.trailing ? kTrailing : crosses ? kCrossing : kInForward;
    groups[{roles[g.op], place}].push_back(gap);
    if (place == kTrailing) trailing_gap_[g.op] = gap;
    if (place == kCrossing) crossing_gap_[g.op] = gap;
  }
  for (int v = 0; v < decisions.num_variants(); ++v) {
    if (problem.variants[v].choices.empty()) continue;
    uint64_t role = 0;
    for (const auto& choice : problem.variants[v].choices) {
      const Implementation& how = problem.ops[choice.first].implementations[choice.second];
      role += Mix(roles[choice.first], Bits(how.runs ? how.time : 0));
    }
    groups[{role, kVariant}].push_back(decisions.variant(v));
  }
  for (auto& group : groups) groups_.push_back(std::move(group.second));
  const auto weight = [&](const std::vector<int>& group) {
    const int op = decisions.is_gap(group[0])
                       ? simulator.gaps()[group[0]].op
                       : problem.variants[group[0] - decisions.num_gaps()].choices[0].first;
    return bytes_made_[op] * static_cast<int64_t>(group.size());
  };
  std::stable_sort(
      groups_.begin(), groups_.end(),
      [&](const std::vector<int>& a, const std::vector<int>& b) { return weight(a) > weight(b); });
  if (groups_.size() > kMostGroups) groups_.resize(kMostGroups);
}

}  // namespace memonger
