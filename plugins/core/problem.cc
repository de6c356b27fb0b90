#include "core/problem.h"

#include <algorithm>
#include <set>

namespace memonger {

namespace {

// Streams that a problem may have at most.
const size_t kMostStreams = 16;

// Reads numbers one by one and remembers whether the end was overrun.
class Reader {
 public:
  Reader(const int64_t* data, int64_t size) : data_(data), size_(size) {}
  int64_t Next() {
    if (at_ >= size_) {
      ok_ = false;
      return 0;
    }
    return data_[at_++];
  }
  // A number in [0, limit).
  int Index(size_t limit) {
    const int64_t value = Next();
    if (value < 0 || value >= static_cast<int64_t>(limit)) {
      ok_ = false;
      return 0;
    }
    return static_cast<int>(value);
  }
  int Count() {
    const int64_t value = Next();
    if (value < 0 || value > size_) ok_ = false;
    return ok_ ? static_cast<int>(value) : 0;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return at_ == size_; }

 private:
  const int64_t* data_;
  int64_t size_;
  int64_t at_ = 0;
  bool ok_ = true;
};

}  // namespace

bool Problem::Parse(const int64_t* data, int64_t size, const double* times, int64_t num_times) {
  Reader in(data, size);
  two_pools = in.Next() != 0;
  max_clones = static_cast<int>(in.Next());
  objects_bytes_per_op = in.Next();
  host_budget = in.Next();
  const int num_tensors = in.Count(), num_ops = in.Count(), num_variants = in.Count();
  if (!in.ok()) return false;
  std::vector<char> made(num_tensors);
  for (int t = 0; t < num_tensors; ++t) {
    const int64_t bytes = in.Next();
    host_bytes.push_back(in.Next());
    tensor_elements.push_back(in.Next());
    tensor_dtype.push_back(static_cast<int>(in.Next()));
    tensor_item_bytes.push_back(static_cast<int>(in.Next()));
    tensor_is_external.push_back(in.Next() != 0);
    tensor_bytes.push_back(tensor_is_external.back() ? 0 : bytes);
    clone_bytes.push_back(bytes);
    tensor_is_view.push_back(in.Next() != 0);
    tensor_is_output.push_back(in.Next() != 0);
    tensor_is_kept.push_back(in.Next() != 0);
    tensor_has_own_buffer.push_back(in.Next() != 0);
    made[t] = in.Next() != 0;
    tensor_handed_on_by.push_back(-1);
    if (!made[t]) host_bytes_before += host_bytes.back();
  }
  int64_t time_at = 0;
  ops.resize(num_ops);
  for (Op& op : ops) {
    op.is_backward = in.Next() != 0;
    op.can_rerun = in.Next() != 0;
    op.state_of = static_cast<int>(in.Next());
    if (op.state_of >= num_ops) return false;
    op.device = static_cast<int>(in.Next());
    pins.push_back(static_cast<char>(in.Next()));
    op.implementations.resize(in.Count());
    if (op.implementations.empty()) return false;
    for (Implementation& impl : op.implementations) {
      impl.runs = in.Next() != 0;
      impl.uses_state = in.Next() != 0 && op.state_of >= 0;
      impl.adds_into_first = in.Next() != 0;
      impl.workspace_bytes = in.Next();
      if (time_at >= num_times) return false;
      impl.time = times[time_at++];
      std::set<int> seen;
      for (int n = in.Count(); n > 0; --n) {
        const int tensor = in.Index(num_tensors);
        const bool ignored = in.Next() != 0;
        impl.inputs.push_back(tensor);
        impl.ignored.push_back(ignored);
        if (!ignored && made[tensor] && seen.insert(tensor).second) impl.reads.push_back(tensor);
      }
      for (int n = in.Count(); n > 0; --n) impl.outputs.push_back(in.Index(num_tensors));
      for (int n = in.Count(); n > 0; --n) {
        InplaceOption option;
        option.input = in.Index(impl.inputs.size());
        option.output = in.Index(impl.outputs.size());
        option.identity = in.Next() != 0;
        if (!in.ok()) return false;
        impl.inplace.push_back(option);
        int times_read = 0;
        for (size_t i = 0; i < impl.inputs.size(); ++i) {
          times_read += !impl.ignored[i] && impl.inputs[i] == impl.inputs[option.input];
        }
        if (times_read == 1 || (times_read > 1 && option.identity)) impl.shares.push_back(option);
      }
      if (!in.ok()) return false;
    }
  }
  variants.resize(num_variants);
  std::vector<std::vector<int>> touching(num_ops);
  for (int v = 0; v < num_variants; ++v) {
    for (int n = in.Count(); n > 0; --n) {
      const int op = in.Index(num_ops);
      const int impl = in.Index(ops[op].implementations.size());
      variants[v].choices.emplace_back(op, impl);
      touching[op].push_back(v);
    }
  }
  for (size_t op = 0; op < ops.size() && !in.at_end(); ++op) {
    ops[op].stream = in.Index(kMostStreams);
    num_streams = std::max(num_streams, ops[op].stream + 1);
    const int tensor = in.Index(tensor_handed_on_by.size() + 1) - 1;
    if (tensor >= 0) tensor_handed_on_by[tensor] = static_cast<int>(op);
  }
  for (int v = 0; v < num_variants; ++v) {
    std::set<int> others;
    for (const auto& choice : variants[v].choices) {
      others.insert(touching[choice.first].begin(), touching[choice.first].end());
    }
    others.erase(v);
    variants[v].conflicts.assign(others.begin(), others.end());
  }
  return in.ok() && in.at_end();
}

}  // namespace memonger
