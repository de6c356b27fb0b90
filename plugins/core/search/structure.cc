#include "core/search/structure.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace memonger {

namespace {

int64_t BytesMade(const Problem& problem, const Op& op) {
  int64_t bytes = 0;
  for (int tensor : op.implementations[0].outputs) bytes += problem.tensor_bytes[tensor];
  return bytes;
}

}  // namespace

Structure::Structure(const Simulator& simulator, const Decisions& decisions)
    : simulator_(simulator), decisions_(decisions) {
  const Problem& problem = simulator.problem();
  FindFamilies();
  for (const Op& op : problem.ops) {
    const int64_t bytes = std::max<int64_t>(1, BytesMade(problem, op));
    seconds_per_byte_.push_back(op.implementations[0].time / static_cast<double>(bytes));
  }
  FindFriendlyVariants();
}

void Structure::FindFamilies() {
  const Problem& problem = simulator_.problem();
  std::map<std::tuple<double, int64_t, int, bool>, int> ids;
  for (int gap = 0; gap < decisions_.num_gaps(); ++gap) {
    const Gap& g = simulator_.gaps()[gap];
    if (!simulator_.IsBackward(g.begin) && simulator_.IsBackward(g.end) && !g.trailing) {
      crossing_.push_back(gap);
    }
    const Op& op = problem.ops[g.op];
    const auto key =
        std::make_tuple(op.implementations[0].time, BytesMade(problem, op), g.index, g.trailing);
    const auto found = ids.emplace(key, static_cast<int>(families_.size()));
    if (found.second) families_.emplace_back();
    std::vector<int>& family = families_[found.first->second];
    family_of_.push_back(found.first->second);
    place_in_family_.push_back(static_cast<int>(family.size()));
    family.push_back(gap);
  }
}

double Structure::TimeAdded(int variant) const {
  const Problem& problem = simulator_.problem();
  double added = 0;
  for (const auto& choice : problem.variants[variant].choices) {
    if (problem.ops[choice.first].stream != 0) continue;  // it may run beside compute
    const std::vector<Implementation>& of_op = problem.ops[choice.first].implementations;
    added += (of_op[choice.second].runs ? of_op[choice.second].time : 0) - of_op[0].time;
  }
  return added;
}

void Structure::FindFriendlyVariants() {
  const Problem& problem = simulator_.problem();
  std::vector<std::pair<double, int>> order;
  for (int v = 0; v < decisions_.num_variants(); ++v) order.emplace_back(TimeAdded(v), v);
  std::sort(order.begin(), order.end());
  std::vector<char> shut_out(order.size(), 0);
  for (const auto& next : order) {
    if (shut_out[next.second]) continue;
    friendly_variants_.push_back(next.second);
    for (int other : problem.variants[next.second].conflicts) shut_out[other] = 1;
  }
}

}  // namespace memonger
