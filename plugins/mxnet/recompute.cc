#include "mxnet/recompute.h"

#include <mxnet/op_attr_types.h>
#include <nnvm/op_attr_types.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <unordered_map>
#include <utility>

#include "mxnet/op_facts.h"

namespace memonger {

using nnvm::Node;
using nnvm::NodeEntry;
using nnvm::ObjectPtr;
using nnvm::Op;

namespace {

const char kRecompute[] = "__memonger_recompute__";
const char kForceMirroring[] = "__force_mirroring__";
// Clone k of an op is named <op>_recompute<k>.
const char kCloneSuffix[] = "_recompute";

// A cursor over the little JSON that the attributes hold: objects of strings or integers.
class Reader {
 public:
  Reader(const std::string& text, const std::string& where) : text_(text), where_(where) {}
  bool Take(char c) {
    Skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void Expect(char c) {
    if (!Take(c)) Fail();
  }
  std::string String() {
    Expect('"');
    std::string value;
    while (at_ < text_.size() && text_[at_] != '"') {
      const char c = text_[at_++];
      value += c == '\\' ? Escape() : c;
    }
    Expect('"');
    return value;
  }
  int Integer() {
    Skip();
    size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    if (begin == at_ || at_ - begin > 6) Fail();
    return std::stoi(text_.substr(begin, at_ - begin));
  }
  void End() {
    Skip();
    if (at_ != text_.size()) Fail();
  }
  void Fail() const {
    LOG(FATAL)
        << "memonger: cannot read the recompute attribute of " << where_ << ": " << text_
        << "; it must be 1 or {\"consumer\": clone, ...}. memonger.strip(symbol) takes it off";
  }

 private:
  // What stands behind a backslash. MXNet's JSON knows no \u, so names hold none.
  char Escape() {
    static const std::string letters = "bfnrt", meant = "\b\f\n\r\t";
    const char c = at_ < text_.size() ? text_[at_++] : '\0';
    const size_t place = letters.find(c);
    return place == std::string::npos ? c : meant[place];
  }
  void Skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  const std::string& text_;
  const std::string& where_;
  size_t at_ = 0;
};

CloneNumbers ParseNumbers(const std::string& text, const std::string& where) {
  CloneNumbers numbers;
  if (Truthy(text)) return numbers;
  Reader reader(text, where);
  reader.Expect('{');
  if (!reader.Take('}')) {
    do {
      const std::string label = reader.String();
      reader.Expect(':');
      numbers[label] = reader.Integer();
    } while (reader.Take(','));
    reader.Expect('}');
  }
  reader.End();
  return numbers;
}

class CloneInserter {
 public:
  CloneInserter(const std::map<const Node*, CloneNumbers>& policies, bool for_cached_op,
                nnvm::Graph* gradients)
      : policies_(policies), for_cached_op_(for_cached_op), gradients_(gradients) {}

  void Run(const std::vector<NodeEntry>& forward_outputs) {
    std::vector<ObjectPtr> ops;
    std::set<std::string> names;
    nnvm::DFSVisit(forward_outputs, [&](const ObjectPtr& n) {
      forward_.insert(n.get());
      if (n->is_variable()) return;
      ops.push_back(n);
      names.insert(n->attrs.name);
    });
    std::map<std::string, int> named;
    for (const ObjectPtr& n : ops) {
      int& count = named[n->attrs.name];
      if (++count == 1) continue;
      const auto numbered = [&]() { return n->attrs.name + "~" + std::to_string(count); };
      while (names.count(numbered())) ++count;
      second_name_[n.get()] = numbered();
    }
    std::vector<ObjectPtr> backward;
    nnvm::DFSVisit(gradients_->outputs, [&](const ObjectPtr& n) {
      if (!forward_.count(n.get()) && !n->is_variable()) backward.push_back(n);
    });
    std::map<std::string, int> seen;
    for (const ObjectPtr& node : backward) {
      std::string label = Label(*node);
      const int count = ++seen[label];
      if (count > 1) label += "@" + std::to_string(count);
      Redirect(node.get(), label);
      sequence_.push_back(node);
    }
    if (for_cached_op_) {
      std::set<const Node*> clones;
      for (const auto& clone : clones_) clones.insert(clone.second.get());
      FindWhatNeeds(clones);
      for (const auto& clone : clones_) DropWaitsThatAddWork(clone.second.get());
    }
    KeepOrder();
  }

 private:
  using Key = std::pair<const Node*, int>;

  // MXNet allows two ops of one name; the second is "name~2" in plans.
  const std::string& NameOf(const Node& forward) const {
    auto found = second_name_.find(&forward);
    return found == second_name_.end() ? forward.attrs.name : found->second;
  }

  // How the plan names a gradient node: by the forward op that it differentiates; the second
  // gradient node of one op gets "@2" behind it, and so on.
  std::string Label(const Node& node) const {
    for (const ObjectPtr& before : node.control_deps)
      if (forward_.count(before.get())) return Escaped(NameOf(*before));
    return Escaped(node.attrs.name);
  }

  // A name in which nothing looks like the numbers behind labels.
  static std::string Escaped(const std::string& name) {
    std::string text;
    for (const char c : name) {
      if (c == '@' || c == '#' || c == '\\') text += '\\';
      text += c;
    }
    return text;
  }

  static std::vector<uint32_t> IgnoredInputs(const Node& node) {
    static const auto& ignored = Op::GetAttr<nnvm::FIgnoreInputs>("FIgnoreInputs");
    return ignored.contains(node.op()) ? ignored[node.op()](node.attrs) : std::vector<uint32_t>();
  }
  static bool Contains(const std::vector<uint32_t>& values, uint32_t value) {
    return std::find(values.begin(), values.end(), value) != values.end();
  }

  // Clone 0 is the node itself.
  int Number(const Node* producer, uint32_t output, const std::string& label) const {
    auto policy = policies_.find(producer);
    if (policy == policies_.end()) return 0;
    if (Contains(KeptOutputs(*producer), output)) return 0;
    auto found = policy->second.find(label);
    return found == policy->second.end() ? 1 : found->second;
  }

  void Redirect(Node* node, const std::string& label) {
    // A clone waits for what its first consumer waits for; so it does not run earlier.
    late_.clear();
    for (const NodeEntry& e : node->inputs) Wait(e.node);
    for (const ObjectPtr& n : node->control_deps) Wait(n);
    const std::vector<uint32_t> skip = IgnoredInputs(*node);
    for (uint32_t i = 0; i < node->inputs.size(); ++i) {
      NodeEntry& e = node->inputs[i];
      if (!forward_.count(e.node.get()) || Contains(skip, i)) continue;
      if (const int number = Number(e.node.get(), e.index, label)) e.node = Clone(e.node, number);
    }
  }

  void Wait(const ObjectPtr& node) {
    if (!forward_.count(node.get()) && !node->is_variable()) late_.push_back(node);
  }

  // Makes a clone after all clones that it reads; on a stack of its own, because chains of
  // clones can be as long as the network.
  ObjectPtr Clone(const ObjectPtr& wanted, int wanted_number) {
    struct Frame {
      ObjectPtr original, clone;
      int number;
      uint32_t next_input;
    };
    auto known = clones_.find(Key(wanted.get(), wanted_number));
    if (known != clones_.end()) return known->second;
    std::vector<Frame> stack{Frame{wanted, Copy(*wanted, wanted_number), wanted_number, 0}};
    ObjectPtr last;
    while (!stack.empty()) {
      Frame& top = stack.back();
      const std::string label = Escaped(NameOf(*top.original)) + "#" + std::to_string(top.number);
      const std::vector<uint32_t> skip = IgnoredInputs(*top.original);
      bool waits = false;
      while (top.next_input < top.original->inputs.size()) {
        NodeEntry e = top.original->inputs[top.next_input];
        const int number =
            Contains(skip, top.next_input) ? 0 : Number(e.node.get(), e.index, label);
        if (number) {
          auto made = clones_.find(Key(e.node.get(), number));
          if (made == clones_.end()) {
            const ObjectPtr original = e.node;  // push_back below moves the frames
            stack.push_back(Frame{original, Copy(*original, number), number, 0});
            waits = true;
            break;
          }
          e.node = made->second;
        }
        top.clone->inputs.push_back(e);
        ++top.next_input;
      }
      if (waits) continue;
      top.clone->control_deps = late_;
      last = top.clone;
      clones_[Key(top.original.get(), top.number)] = last;
      sequence_.push_back(last);
      stack.pop_back();
    }
    return last;
  }

  // A CachedOp runs what the gradients that were asked for need, so a clone must not wait for what
  // only others need: gradients of frozen layers would run, and move averages. A gradient that
  // waits for another by itself, as in a split convolution, needs it.
  void FindWhatNeeds(const std::set<const Node*>& clones) {
    std::vector<ObjectPtr> inputs_first;
    nnvm::DFSVisit(gradients_->outputs, [&](const ObjectPtr& n) {
      if (!forward_.count(n.get()) && !n->is_variable()) inputs_first.push_back(n);
    });
    for (size_t i = 0; i < gradients_->outputs.size(); ++i) {
      const Node* made_by = gradients_->outputs[i].node.get();
      if (!forward_.count(made_by)) Needs(made_by)[i] = true;
    }
    for (auto node = inputs_first.rbegin(); node != inputs_first.rend(); ++node) {
      const std::vector<bool> needed = Needs(node->get());
      const auto also_needed = [&](const ObjectPtr& before) {
        if (forward_.count(before.get()) || before->is_variable()) return;
        std::vector<bool>& of_before = Needs(before.get());
        for (size_t i = 0; i < needed.size(); ++i)
          if (needed[i]) of_before[i] = true;
      };
      for (const NodeEntry& e : (*node)->inputs) also_needed(e.node);
      if (clones.count(node->get())) continue;
      for (const ObjectPtr& before : (*node)->control_deps) also_needed(before);
    }
  }

  std::vector<bool>& Needs(const Node* node) {
    std::vector<bool>& needs = needs_[node];
    needs.resize(gradients_->outputs.size());
    return needs;
  }

  // Whether `before` runs whatever gradients are asked for, as long as `node` does.
  bool RunsWith(const Node* node, const Node* before) {
    if (!for_cached_op_) return true;
    const std::vector<bool>&of_node = Needs(node), &of_before = Needs(before);
    for (size_t i = 0; i < of_node.size(); ++i)
      if (of_node[i] && !of_before[i]) return false;
    return true;
  }

  void DropWaitsThatAddWork(Node* node) {
    std::vector<ObjectPtr>& waits = node->control_deps;
    waits.erase(std::remove_if(waits.begin(), waits.end(),
                               [&](const ObjectPtr& before) {
                                 return !forward_.count(before.get()) &&
                                        !RunsWith(node, before.get());
                               }),
                waits.end());
  }

  // MXNet runs nodes in depth-first order. A gradient that reads a clone before another gradient
  // (batch_dot's) would visit what that clone waits for first. Then each node waits for the one
  // before it: control dependencies order nodes and nothing else, engines do not see them.
  void KeepOrder() {
    size_t place = 0;
    bool kept = true;
    nnvm::DFSVisit(gradients_->outputs, [&](const ObjectPtr& n) {
      if (forward_.count(n.get()) || n->is_variable()) return;
      kept = kept && place < sequence_.size() && sequence_[place++] == n;
    });
    for (size_t i = 1; !kept && i < sequence_.size(); ++i) {
      size_t before = i;
      while (before > 0 && !RunsWith(sequence_[i].get(), sequence_[before - 1].get())) --before;
      if (before > 0) sequence_[i]->control_deps.push_back(sequence_[before - 1]);
    }
  }

  static ObjectPtr Copy(const Node& original, int number) {
    ObjectPtr copy = Node::Create();
    copy->attrs = original.attrs;
    copy->attrs.name += kCloneSuffix + std::to_string(number);
    for (auto entry = copy->attrs.dict.begin(); entry != copy->attrs.dict.end();) {
      entry = IsOfPlan(entry->first) || entry->first == kForceMirroring
                  ? copy->attrs.dict.erase(entry)
                  : std::next(entry);
    }
    if (UpdatesAverages(original)) {  // cuDNN's forward would move the averages a second time
      copy->attrs.dict["momentum"] = "1";
      copy->op()->attr_parser(&copy->attrs);
    }
    return copy;
  }

  const std::map<const Node*, CloneNumbers>& policies_;
  const bool for_cached_op_;
  nnvm::Graph* gradients_;
  std::set<const Node*> forward_;
  std::map<const Node*, std::string> second_name_;
  std::vector<ObjectPtr> late_;
  std::vector<ObjectPtr> sequence_;  // gradients and clones in the order in which they are to run
  std::map<Key, ObjectPtr> clones_;
  // For each gradient and clone: which of the gradients' outputs read it.
  std::unordered_map<const Node*, std::vector<bool>> needs_;
};

}  // namespace

std::map<const Node*, CloneNumbers> ReadPolicies(const std::vector<NodeEntry>& outputs,
                                                 bool for_cached_op, bool* marked) {
  std::map<const Node*, CloneNumbers> policies;
  std::vector<const Node*> nodes;
  nnvm::DFSVisit(outputs, [&](const ObjectPtr& n) {
    if (!n->is_variable()) nodes.push_back(n.get());
  });
  const auto reasons = KeepReasons(nodes);
  for (const Node* n : nodes) {
    std::string text = Attribute(*n, kRecompute);
    const bool forced = text.empty() && Truthy(Attribute(*n, kForceMirroring));
    if (forced) text = "1";
    if (!text.empty() || !Attribute(*n, kStorageMark).empty()) *marked = true;
    if (text.empty() || text == "0") continue;
    const std::string refusal = RefusalReason(*n);
    if (!refusal.empty())
      LOG(FATAL) << "memonger: the attribute " << (forced ? "force_mirroring" : kRecompute)
                 << " asks to run " << n->attrs.name << " (" << n->op()->name
                 << ") a second time, but " << refusal << "; take the attribute off this op"
                 << (forced ? " (force_mirroring='False')" : "");
    // In vain: ops without inputs (an AttrScope marks them all), whole graphs, what these read.
    if (reasons.count(n) || (for_cached_op && MakesState(*n))) continue;
    policies[n] = ParseNumbers(text, n->attrs.name);
  }
  return policies;
}

bool RunsAgain(const Node& node) {
  // Gradients have a copy of their op's attributes.
  static const auto& backward = Op::GetAttr<nnvm::TIsBackward>("TIsBackward");
  if (backward.get(node.op(), false)) return false;
  return node.attrs.name.find(kCloneSuffix) != std::string::npos ||
         !Attribute(node, kRecompute).empty() || Truthy(Attribute(node, kForceMirroring));
}

void InsertClones(const std::vector<NodeEntry>& forward_outputs,
                  const std::map<const Node*, CloneNumbers>& policies, bool for_cached_op,
                  nnvm::Graph* gradients) {
  if (!policies.empty()) CloneInserter(policies, for_cached_op, gradients).Run(forward_outputs);
}

}  // namespace memonger
