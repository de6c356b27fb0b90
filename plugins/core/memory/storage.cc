#include "core/memory/storage.h"

#include <algorithm>
#include <map>
#include <utility>

namespace memonger {
namespace storage {

void Program::Clear() {
  output_begin.assign(1, 0);
  input_begin.assign(1, 0);
  inplace_begin.assign(1, 0);
  for (std::vector<int32_t>* v :
       {&outputs, &inputs, &device, &pool, &dtype, &item_bytes, &held, &references})
    v->clear();
  for (std::vector<uint8_t>* v : {&ignored, &adds_into_first, &external, &own_buffer}) v->clear();
  for (std::vector<int64_t>* v : {&elements, &bytes}) v->clear();
  inplace.clear();
}

// -------------------------------------------------------------------------------- Replay

void Replay(const Program& p, const Model& model, Blocks* out) {
  const int32_t steps = p.num_steps(), entries = p.num_entries();
  out->num_steps = steps;
  out->blocks.clear();
  out->released.clear();
  out->block_of.assign(entries, -1);
  out->inplace_index.assign(entries, -1);
  std::vector<Block>& blocks = out->blocks;
  std::vector<int32_t>& block_of = out->block_of;

  // References of each value; `uses` counts ignored inputs too, as DetectInplaceAddTo does.
  std::vector<int32_t> uses(p.held), references, producer(entries, -1);
  for (int32_t entry : p.inputs)
    if (entry >= 0) ++uses[entry];
  if (!p.references.empty()) {
    references = p.references;
  } else {
    references = uses;
    if (!model.count_ignored)
      for (size_t i = 0; i < p.inputs.size(); ++i)
        if (p.ignored[i] && p.inputs[i] >= 0) --references[p.inputs[i]];
  }
  std::vector<int32_t> left;  // references of each block that are still to come
  std::vector<uint8_t> taken;
  std::vector<std::pair<int64_t, int32_t>> fresh;

  for (int32_t s = 0; s < steps; ++s) {
    const int32_t in = p.input_begin[s], num_inputs = p.input_begin[s + 1] - in;
    const int32_t ob = p.output_begin[s], num_outputs = p.output_begin[s + 1] - ob;
    for (int32_t i = 0; i < num_outputs; ++i) producer[p.outputs[ob + i]] = s;
    // Outputs that take the memory of an input.
    if (p.inplace_begin[s] < p.inplace_begin[s + 1]) {
      bool ignores_all = num_inputs > 0;
      for (int32_t i = 0; i < num_inputs; ++i) ignores_all = ignores_all && p.ignored[in + i];
      taken.assign(num_inputs, 0);
      for (int32_t k = p.inplace_begin[s]; k < p.inplace_begin[s + 1]; ++k) {
        const Inplace& option = p.inplace[k];
        const int32_t from = p.inputs[in + option.input], to = p.outputs[ob + option.output];
        if (taken[option.input] || from < 0 || block_of[to] >= 0 || p.external[to]) continue;
        const int32_t block = block_of[from];
        if (block < 0 || blocks[block].pool != p.pool[s] || left[block] <= 0) continue;
        if (p.elements[to] != p.elements[from] || references[to] <= 0 ||
            p.item_bytes[to] != p.item_bytes[from])
          continue;
        const bool renames = option.identity && p.dtype[to] == p.dtype[from];
        if (!(left[block] == 1 && !ignores_all) && !renames) continue;
        taken[option.input] = 1;
        block_of[to] = block;
        left[block] += references[to];
        out->inplace_index[to] = option.input;
      }
    }
    // Outputs that need new memory: most elements first, later outputs first at equal numbers.
    fresh.clear();
    for (int32_t i = 0; i < num_outputs; ++i) {
      const int32_t entry = p.outputs[ob + i];
      if (block_of[entry] < 0 && !p.external[entry]) fresh.emplace_back(p.elements[entry], i);
    }
    if (fresh.size() > 1) std::sort(fresh.rbegin(), fresh.rend());
    for (const auto& item : fresh) {
      const int32_t entry = p.outputs[ob + item.second];
      block_of[entry] = static_cast<int32_t>(blocks.size());
      blocks.push_back(Block{s, steps, 0, p.elements[entry], p.device[s], p.pool[s], 0});
      left.push_back(references[entry]);
    }
    for (int32_t i = 0; i < num_inputs; ++i) {
      const int32_t entry = p.inputs[in + i];
      if (entry < 0 || p.ignored[in + i]) continue;
      const int32_t block = block_of[entry];
      if (block < 0 || blocks[block].pool != p.pool[s]) continue;
      if (--left[block] == 0) {
        blocks[block].end = s;
        out->released.push_back(block);
      }
    }
    for (int32_t i = 0; i < num_outputs; ++i) {
      const int32_t entry = p.outputs[ob + i], block = block_of[entry];
      if (block >= 0 && left[block] == 0) {
        blocks[block].end = s;
        out->released.push_back(block);
        out->inplace_index[entry] = -2;
      }
    }
  }

  // Right operands that are added where the left one lies, when they are made, take no memory.
  std::vector<uint8_t> added(entries, 0);
  for (int32_t s = 0; s < steps; ++s) {
    if (!p.adds_into_first[s]) continue;
    const int32_t lhs = p.inputs[p.input_begin[s]], rhs = p.inputs[p.input_begin[s] + 1];
    const int32_t sum = p.outputs[p.output_begin[s]];
    if (lhs < 0 || rhs < 0 || producer[lhs] < 0 || producer[rhs] < 0) continue;
    const bool same = block_of[lhs] >= 0 ? block_of[lhs] == block_of[sum] : block_of[sum] < 0;
    if (same && uses[rhs] == 1 && producer[lhs] < producer[rhs]) added[rhs] = 1;
  }
  for (int32_t e = 0; e < entries; ++e)
    if (block_of[e] >= 0 && !added[e])
      blocks[block_of[e]].bytes = std::max(blocks[block_of[e]].bytes, p.bytes[e]);
  for (size_t e = 0; e < p.own_buffer.size(); ++e)
    if (p.own_buffer[e] && block_of[e] >= 0) blocks[block_of[e]].own_buffer = 1;
}

// ---------------------------------------------------------------------------------- peak

Peak PeakLive(const Blocks& b) {
  std::vector<int64_t> change(b.num_steps + 2, 0);
  for (const Block& block : b.blocks) {
    change[block.start] += block.bytes;
    change[std::min(block.end, b.num_steps) + 1] -= block.bytes;
  }
  Peak peak;
  int64_t live = 0;
  for (int32_t s = 0; s < b.num_steps; ++s) {
    live += change[s];
    if (live > peak.bytes) {
      peak.bytes = live;
      peak.step = s;
    }
  }
  return peak;
}

// --------------------------------------------------------------------------------- Stock

namespace {

// MXNet's NNVM_EXEC_MATCH_RANGE.
constexpr int64_t kMatchRange = 16;

// MXGraphAllocator on the blocks of one pool, whose buffers are numbered from `first_buffer` on.
void StockPool(const Blocks& b, int32_t pool, int32_t first_buffer,
               std::vector<int32_t>* buffer_of) {
  struct Storage {
    int32_t device;
    int64_t bytes;
  };
  std::vector<Storage> data;
  std::multimap<int64_t, int32_t> free;
  size_t next_release = 0;
  for (size_t i = 0; i < b.blocks.size(); ++i) {
    const Block& block = b.blocks[i];
    if (block.pool != pool) continue;
    for (; next_release < b.released.size(); ++next_release) {
      const int32_t r = b.released[next_release];
      if (b.blocks[r].end >= block.start) break;
      if (b.blocks[r].pool != pool) continue;
      const int32_t id = (*buffer_of)[r] - first_buffer;
      free.insert({data[id].bytes, id});
    }
    const int64_t size = block.elements * 4;
    int32_t id;
    const auto begin = free.lower_bound(size / kMatchRange), mid = free.lower_bound(size),
               end = free.upper_bound(size * kMatchRange);
    auto found = free.end();
    for (auto it = mid; it != end && found == free.end(); ++it)
      if (data[it->second].device == block.device) found = it;
    for (auto it = mid; it != begin && found == free.end();) {
      --it;
      if (data[it->second].device == block.device) found = it;
    }
    if (found != free.end()) {
      id = found->second;
      free.erase(found);
      data[id].bytes = std::max(data[id].bytes, size);
    } else {
      id = static_cast<int32_t>(data.size());
      data.push_back(Storage{block.device, size});
    }
    (*buffer_of)[i] = first_buffer + id;
  }
}

}  // namespace

void Stock(const Blocks& b, const Model& model, Assignment* result) {
  result->buffer_of.assign(b.blocks.size(), -1);
  int32_t pools = 0, first_buffer = 0;
  for (const Block& block : b.blocks) pools = std::max(pools, block.pool + 1);
  for (int32_t pool = 0; pool < pools; ++pool) {
    StockPool(b, pool, first_buffer, &result->buffer_of);
    for (int32_t id : result->buffer_of) first_buffer = std::max(first_buffer, id + 1);
  }
  Measure(b, model, result);
}

void Measure(const Blocks& b, const Model& model, Assignment* result) {
  result->offset_of.clear();
  int32_t buffers = 0;
  for (int32_t id : result->buffer_of) buffers = std::max(buffers, id + 1);
  std::vector<int64_t> printed(buffers, 0);
  result->buffer_bytes.assign(buffers, 0);
  for (size_t i = 0; i < b.blocks.size(); ++i) {
    const int32_t id = result->buffer_of[i];
    result->buffer_bytes[id] =
        std::max(result->buffer_bytes[id], RoundUp(b.blocks[i].bytes, model.rounding));
    printed[id] = std::max(printed[id], b.blocks[i].elements * 4);
  }
  result->pool_bytes = result->printed_bytes = 0;
  for (int64_t size : result->buffer_bytes) result->pool_bytes += size;
  for (int64_t size : printed) result->printed_bytes += size;
}

}  // namespace storage
}  // namespace memonger
