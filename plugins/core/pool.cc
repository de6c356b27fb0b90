#include "core/pool.h"

#include <algorithm>

namespace memonger {

namespace {

// Tries of the search for an arena, a twentieth of the usual: the last ones win a tenth of a
// percent.
const int kArenaEffort = 20;

}  // namespace

PoolMeter::PoolMeter(const Problem& problem, storage::Kind kind) : problem_(problem), kind_(kind) {
  model_.count_ignored = problem_.two_pools;
  model_.rounding = problem_.two_pools ? 1 : 4;
  if (kind == storage::Kind::kArena) model_.effort = kArenaEffort;
}

void PoolMeter::Fill(const Trace& trace) {
  program_.Clear();
  is_view_.clear();
  const int steps = static_cast<int>(trace.ops.size());
  std::vector<int> producer_slot(problem_.tensor_bytes.size(), -1);
  std::vector<int> first_value(steps);
  for (int step = 0; step < steps; ++step) {
    const Op& op = problem_.ops[trace.ops[step]];
    const Implementation& impl = op.implementations[trace.implementations[step]];
    first_value[step] = program_.num_entries();
    const bool first_run = trace.clones[step] == 0;
    const std::vector<int64_t>& sizes = first_run ? problem_.tensor_bytes : problem_.clone_bytes;
    for (size_t i = 0; i < impl.inputs.size(); ++i) {
      const int source = trace.sources[trace.source_begin[step] + i];
      const int tensor = impl.inputs[i];
      int value = -1;
      if (source >= 0) {
        const bool handed_on = problem_.tensor_handed_on_by[tensor] == trace.ops[source];
        value = first_value[source] + (handed_on ? 0 : producer_slot[tensor]);
      }
      program_.inputs.push_back(value);
      program_.ignored.push_back(impl.ignored[i]);
    }
    for (size_t slot = 0; slot < impl.outputs.size(); ++slot) {
      const int tensor = impl.outputs[slot];
      producer_slot[tensor] = static_cast<int>(slot);
      program_.outputs.push_back(first_value[step] + static_cast<int>(slot));
      program_.elements.push_back(problem_.tensor_elements[tensor]);
      program_.bytes.push_back(sizes[tensor]);
      program_.dtype.push_back(problem_.tensor_dtype[tensor]);
      program_.item_bytes.push_back(problem_.tensor_item_bytes[tensor]);
      program_.external.push_back(first_run && problem_.tensor_is_external[tensor]);
      program_.own_buffer.push_back(problem_.tensor_has_own_buffer[tensor]);
      is_view_.push_back(problem_.tensor_is_view[tensor]);
      program_.held.push_back(first_run && problem_.tensor_is_output[tensor]);
    }
    for (const InplaceOption& option : impl.inplace) {
      program_.inplace.push_back(
          {option.input, option.output, static_cast<uint8_t>(option.identity)});
    }
    program_.input_begin.push_back(static_cast<int32_t>(program_.inputs.size()));
    program_.output_begin.push_back(static_cast<int32_t>(program_.outputs.size()));
    program_.inplace_begin.push_back(static_cast<int32_t>(program_.inplace.size()));
    program_.device.push_back(op.device);
    program_.pool.push_back(problem_.two_pools && (op.is_backward || trace.clones[step] > 0));
    program_.adds_into_first.push_back(impl.adds_into_first);
  }
  LeaveOutUnreadViews();
  storage::Replay(program_, model_, &blocks_);
}

// A view that nobody reads takes no memory.
void PoolMeter::LeaveOutUnreadViews() {
  if (std::find(is_view_.begin(), is_view_.end(), 1) == is_view_.end()) return;
  for (size_t i = 0; i < program_.inputs.size(); ++i)
    if (program_.inputs[i] >= 0 && !program_.ignored[i]) is_view_[program_.inputs[i]] = 0;
  for (size_t value = 0; value < is_view_.size(); ++value)
    if (is_view_[value] && !program_.held[value]) program_.external[value] = 1;
}

int64_t PoolMeter::Exact(const Trace& trace, int64_t wanted) {
  Fill(trace);
  if (kind_ == storage::Kind::kLive) return storage::PeakLive(blocks_).bytes;
  if (kind_ == storage::Kind::kStock) {
    storage::Stock(blocks_, model_, &assignment_);
  } else if (kind_ == storage::Kind::kArena) {
    storage::Smallest(blocks_, model_, &assignment_, wanted);
  } else {
    packer_.Best(blocks_, model_, &assignment_);
  }
  return assignment_.pool_bytes;
}

}  // namespace memonger
