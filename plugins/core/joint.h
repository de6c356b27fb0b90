// Recomputation, operator variants, convolution algorithms and in-place execution chosen together,
// in the stage model of MONeT (Shah et al., "Memory optimization for deep networks", ICLR 2021).
//
// The forward nodes run in order in stage 0; every later stage runs one backward node, after any
// forward nodes again. S[t] is the set of values held when stage t begins. Given S[t], S[t+1] and
// the variant of the stage's backward node, the fewest nodes that must run follow, and so do the
// algorithm of each convolution and whether a node runs in place, because they matter to their own
// step only. So a plan is S and a variant for each stage, and its cost a sum over stages.
#ifndef MEMONGER_CORE_JOINT_H_
#define MEMONGER_CORE_JOINT_H_

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace memonger {

// A set of forward nodes.
const int kJointWords = 8;
const int kMaxForwardNodes = 64 * kJointWords;
struct NodeSet {
  std::array<uint64_t, kJointWords> word{};
  bool Has(int node) const { return word[node >> 6] >> (node & 63) & 1; }
  void Add(int node) { word[node >> 6] |= uint64_t{1} << (node & 63); }
  void Remove(int node) { word[node >> 6] &= ~(uint64_t{1} << (node & 63)); }
};

// One way to compute a backward node (of a forward node there is one).
struct JointVariant {
  std::vector<int> needs;     // forward values it reads
  std::vector<int> released;  // forward values that are not counted a second time while it runs
  NodeSet needs_set;
};

struct JointNode {
  int64_t size = 0, local = 0, fixed = 0;
  bool is_mask = false;      // an extra output that its parent makes when asked to
  bool is_convolution = false;
  int in_place_of = -1;      // the value that it may overwrite
  int parent = -1;           // of a mask
  // By algorithm, or by variant of a backward node; a negative time: there is none.
  std::vector<int64_t> time, time_again, time_in_place;
  std::vector<int64_t> workspace, workspace_again, workspace_in_place;
  std::vector<int> local_tensors, masks;
  std::vector<JointVariant> variants;
};

struct StageOutcome {
  int64_t cost = 0;
  int64_t overflow = 0;  // above the budget, summed over the steps of the stage
};

// What happens in one stage.
struct StageTrace {
  std::vector<int> runs, in_place;
  std::vector<std::pair<int, int>> algorithms;  // node, algorithm
};

class JointModel {
 public:
  // The layout of `data` is that of memonger/bench/joint.py; false where it contradicts itself.
  bool Parse(const int64_t* data, int64_t size);

  int num_forward() const { return num_forward_; }
  int num_stages() const { return num_stages_; }
  int num_words() const { return words_; }
  const JointNode& node(int number) const { return nodes_[number]; }
  const JointNode& backward(int stage) const { return nodes_[num_forward_ + stage - 1]; }
  // Variants to choose from in a stage; stage 0 has none.
  int num_variants(int stage) const {
    return stage == 0 ? 1 : static_cast<int>(backward(stage).variants.size());
  }
  const NodeSet& inputs(int node) const { return inputs_[node]; }
  const NodeSet& consumers(int node) const { return consumers_[node]; }
  int64_t largest_time() const { return largest_time_; }

  void set_budget(int64_t budget) { budget_ = budget; }
  int64_t budget() const { return budget_; }

  // The forward nodes that run in a stage.
  NodeSet Runs(int stage, const NodeSet& before, const NodeSet& after, int variant) const;
  // Time and memory of a stage, whose sets are of the given total sizes.
  StageOutcome Evaluate(int stage, const NodeSet& before, int64_t before_size,
                        const NodeSet& after, int64_t after_size, int variant, NodeSet* runs,
                        StageTrace* trace) const;

 private:
  int num_forward_ = 0, num_stages_ = 0, words_ = 0;
  bool choose_algorithms_ = false, in_place_ = false;
  int64_t budget_ = 0, largest_time_ = 0;
  std::vector<JointNode> nodes_;
  std::vector<NodeSet> inputs_, consumers_;
  NodeSet first_runs_;  // everything but masks
};

}  // namespace memonger

#endif  // MEMONGER_CORE_JOINT_H_
