#include "joint.h"

#include <algorithm>

namespace memonger {

namespace {

class Reader {
 public:
  Reader(const int64_t* data, int64_t size) : next_(data), end_(data + size) {}
  bool ok() const { return ok_; }
  bool finished() const { return ok_ && next_ == end_; }
  int64_t One() {
    if (next_ == end_) ok_ = false;
    return ok_ ? *next_++ : 0;
  }
  // A number in [low, high).
  int Index(int64_t low, int64_t high) {
    const int64_t value = One();
    if (value < low || value >= high) ok_ = false;
    return ok_ ? static_cast<int>(value) : 0;
  }
  template <typename T>
  void List(std::vector<T>* list) {
    const int64_t count = One();
    if (count < 0 || count > end_ - next_) ok_ = false;
    if (!ok_) return;
    list->assign(next_, next_ + count);
    next_ += count;
  }
  void Nodes(std::vector<int>* list, int limit) {
    List(list);
    for (int value : *list) {
      if (value < 0 || value >= limit) ok_ = false;
    }
  }

 private:
  const int64_t* next_;
  const int64_t* end_;
  bool ok_ = true;
};

int HighestBit(uint64_t word) { return 63 - __builtin_clzll(word); }
int LowestBit(uint64_t word) { return __builtin_ctzll(word); }

}  // namespace

bool JointModel::Parse(const int64_t* data, int64_t size) {
  Reader reader(data, size);
  const int count = reader.Index(1, 1 << 20);
  num_forward_ = reader.Index(2, std::min(count, kMaxForwardNodes) + 1);
  choose_algorithms_ = reader.One() != 0;
  in_place_ = reader.One() != 0;
  if (!reader.ok()) return false;
  num_stages_ = count - num_forward_ + 1;
  words_ = (num_forward_ + 63) / 64;
  nodes_.assign(count, JointNode());
  inputs_.assign(num_forward_, NodeSet());
  consumers_ = inputs_;
  for (int number = 0; number < count; ++number) {
    JointNode& node = nodes_[number];
    node.size = reader.One();
    node.local = reader.One();
    node.fixed = reader.One();
    node.is_mask = reader.One() != 0;
    node.is_convolution = reader.One() != 0 && choose_algorithms_;
    node.in_place_of = reader.Index(-1, num_forward_);
    for (auto* list : {&node.time, &node.time_again, &node.time_in_place, &node.workspace,
                       &node.workspace_again, &node.workspace_in_place}) {
      reader.List(list);
    }
    reader.Nodes(&node.local_tensors, count);
    reader.Nodes(&node.masks, num_forward_);
    node.variants.resize(reader.Index(1, 4));
    for (JointVariant& variant : node.variants) {
      reader.Nodes(&variant.needs, num_forward_);
      reader.Nodes(&variant.released, num_forward_);
      for (int need : variant.needs) variant.needs_set.Add(need);
    }
    if (!reader.ok()) return false;
    const size_t variants = node.variants.size();
    const size_t algorithms = node.time.size();
    const bool is_forward = number < num_forward_;
    if (algorithms == 0 || node.workspace.size() < algorithms ||
        (is_forward && (node.time_again.empty() || node.time_in_place.empty() ||
                        node.workspace_again.size() < algorithms ||
                        node.workspace_in_place.empty())) ||
        (!is_forward && !node.is_convolution && algorithms < variants)) {
      return false;
    }
    if (node.is_convolution &&
        std::all_of(node.time.begin(), node.time.end(), [](int64_t t) { return t < 0; })) {
      return false;
    }
    for (int64_t time : node.time) largest_time_ = std::max(largest_time_, time);
    if (!is_forward) continue;
    if (!node.is_mask) first_runs_.Add(number);
    for (int need : node.variants[0].needs) {
      if (need >= number) {
        if (number + 1 == num_forward_ && need == number) continue;
        return false;
      }
      inputs_[number].Add(need);
      consumers_[need].Add(number);
    }
  }
  for (int number = 0; number < num_forward_; ++number) {
    for (int mask : nodes_[number].masks) {
      if (mask <= number || !nodes_[mask].is_mask) return false;
      nodes_[mask].parent = number;
    }
  }
  return reader.finished();
}

NodeSet JointModel::Runs(int stage, const NodeSet& before, const NodeSet& after,
                         int variant) const {
  const NodeSet& needs = backward(stage).variants[variant].needs_set;
  NodeSet runs;
  uint64_t any = 0;
  for (int w = 0; w < words_; ++w) {
    runs.word[w] = (needs.word[w] & ~after.word[w]) | (after.word[w] & ~before.word[w]);
    if (stage == 0) runs.word[w] |= first_runs_.word[w];
    any |= runs.word[w];
  }
  if (any == 0 || stage == 0) return runs;  // in stage 0 all that can be read runs
  // Inputs come before the nodes that read them: one pass from the last to the first.
  for (int w = words_ - 1; w >= 0; --w) {
    uint64_t left = runs.word[w];
    while (left != 0) {
      const int bit = HighestBit(left);
      const int number = 64 * w + bit;
      const NodeSet& read = inputs_[number];
      for (int i = 0; i <= w; ++i) runs.word[i] |= read.word[i] & ~before.word[i];
      const int parent = nodes_[number].parent;
      if (parent >= 0) runs.Add(parent);
      left = runs.word[w] & ((uint64_t{1} << bit) - 1);
    }
  }
  return runs;
}

StageOutcome JointModel::Evaluate(int stage, const NodeSet& before, int64_t before_size,
                                  const NodeSet& after, int64_t after_size, int variant,
                                  NodeSet* runs_out, StageTrace* trace) const {
  const JointNode& last = backward(stage);
  const JointVariant& how = last.variants[variant];
  const NodeSet runs = Runs(stage, before, after, variant);
  const NodeSet& needs = how.needs_set;
  StageOutcome outcome;
  const auto charge = [&](int64_t bytes) {
    if (bytes > budget_) outcome.overflow += bytes - budget_;
  };
  // The cheapest algorithm that fits, or the one with the least workspace.
  const auto choose = [&](const JointNode& node, const std::vector<int64_t>& workspaces,
                          int64_t base) {
    int best = -1;
    bool fits = false;
    for (int i = 0; i < static_cast<int>(node.time.size()); ++i) {
      if (node.time[i] < 0) continue;
      const bool fit = base + workspaces[i] <= budget_;
      if (best < 0 || (fit && !fits) ||
          (fit == fits && (fit ? node.time[i] < node.time[best]
                               : workspaces[i] < workspaces[best]))) {
        best = i;
        fits = fit;
      }
    }
    return best;
  };
  const int64_t gradients =
      (stage > 0 ? last.local : 0) + nodes_[num_forward_ + stage - 2].fixed;
  // Values held: those of S[t] behind the node at hand, of S[t+1] or needed by the backward node
  // before it.
  int64_t held = before_size, most = before_size;
  NodeSet in_place;
  for (int w = 0; w < words_; ++w) {
    const uint64_t changes = (before.word[w] ^ after.word[w]) | needs.word[w];
    uint64_t events = changes | runs.word[w];
    while (events != 0) {
      const int bit = LowestBit(events);
      events &= events - 1;
      const int number = 64 * w + bit;
      const JointNode& node = nodes_[number];
      const bool was_held = before.word[w] >> bit & 1;
      if (runs.word[w] >> bit & 1) {
        if (trace) trace->runs.push_back(number);
        int64_t base = gradients + node.size + node.local + held - (was_held ? node.size : 0);
        for (int local : node.local_tensors) {
          if (local >= num_forward_) continue;
          if (local < number ? after.Has(local) : local > number && before.Has(local)) {
            base -= nodes_[local].size;
          }
        }
        const auto& workspaces = stage > 0 ? node.workspace_again : node.workspace;
        if (node.is_convolution) {
          const int algorithm = choose(node, workspaces, base);
          outcome.cost += node.time[algorithm];
          charge(base + workspaces[algorithm]);
          if (trace) trace->algorithms.emplace_back(number, algorithm);
        } else {
          bool overwrites = false;
          const int overwritten = in_place_ ? node.in_place_of : -1;
          if (overwritten >= 0 && node.is_mask) {
            overwrites = node.parent >= 0 && in_place.Has(node.parent);
          } else if (overwritten >= 0 && !needs.Has(overwritten) && !after.Has(overwritten)) {
            int64_t added = node.time_in_place[0] - node.time[0];
            bool allowed = true;
            for (int mask : node.masks) {
              if (!runs.Has(mask)) continue;
              allowed = allowed && nodes_[mask].in_place_of >= 0;
              added += nodes_[mask].time_in_place[0] - nodes_[mask].time[0];
            }
            overwrites = allowed && node.workspace_in_place[0] <= workspaces[0] &&
                         (added <= 0 || base + workspaces[0] > budget_);
          }
          outcome.cost += stage > 0 ? node.time_again[0] : node.time[0];
          if (overwrites) {
            outcome.cost += node.time_in_place[0] - node.time[0];
            in_place.Add(number);
            if (trace) trace->in_place.push_back(number);
          }
          charge(base + (overwrites ? node.workspace_in_place[0] : workspaces[0]));
        }
      }
      if (changes >> bit & 1) {
        if (((after.word[w] | needs.word[w]) >> bit & 1) != 0) held += node.size;
        if (was_held) held -= node.size;
        if (held > most && number + 1 < num_forward_) most = held;
      }
    }
  }
  charge(gradients + most);
  if (stage == 0) {
    if (!last.is_convolution) outcome.cost += last.time[0];
  } else {
    int64_t base = last.local + last.fixed + last.size + after_size;
    for (int need : how.needs) base += nodes_[need].size;
    for (int value : how.released) {
      if (after.Has(value)) base -= nodes_[value].size;
    }
    const int chosen = last.is_convolution ? choose(last, last.workspace, base) : variant;
    outcome.cost += last.time[chosen];
    charge(base + last.workspace[chosen]);
    if (trace && last.is_convolution) {
      trace->algorithms.emplace_back(num_forward_ + stage - 1, chosen);
    }
  }
  if (runs_out) *runs_out = runs;
  return outcome;
}

}  // namespace memonger
