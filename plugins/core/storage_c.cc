/* C calls for storage planning: what memonger/memory/storage.py loads.
 *
 * All arrays belong to the caller. Flat layout as in storage.h.
 */
#include <algorithm>

#include "core/memory/storage.h"

#define MEMONGER_API extern "C" __attribute__((visibility("default")))

namespace {

using memonger::storage::Inplace;
using memonger::storage::Kind;
using memonger::storage::Model;
using memonger::storage::Program;

template <typename T>
void Copy(const T* from, int64_t count, std::vector<T>* to) {
  to->assign(from, from + count);
}

}  // namespace

// Plans the storage of one order of execution.
//
// options: count_ignored, rounding, storage::Kind.
// inplace: triples (input, output, identity). blocks: start, end, bytes, elements, device, pool,
// own_buffer for each block; all other results have room for one number for each entry, `blocks`
// for seven. totals: pool bytes, printed bytes, peak live bytes, its step, lower bound, number of
// buffers, whether blocks have offsets, how many times a search laid a block down.
// Returns the number of blocks.
MEMONGER_API int32_t memonger_storage_plan(
    int32_t steps, int32_t entries, const int32_t* output_begin, const int32_t* outputs,
    const int32_t* input_begin, const int32_t* inputs, const uint8_t* ignored,
    const int32_t* inplace_begin, const int32_t* inplace, const int32_t* device,
    const int32_t* pool, const uint8_t* adds_into_first, const int64_t* elements,
    const int64_t* bytes, const int32_t* dtype, const int32_t* item_bytes, const uint8_t* external,
    const int32_t* held, const uint8_t* own_buffer, const int32_t* options, int64_t* blocks, int32_t* released, int32_t* num_released,
    int32_t* block_of, int32_t* inplace_index, int32_t* buffer_of, int64_t* offset_of,
    int64_t* buffer_bytes, int64_t* totals) {
  Program p;
  Copy(output_begin, steps + 1, &p.output_begin);
  Copy(outputs, output_begin[steps], &p.outputs);
  Copy(input_begin, steps + 1, &p.input_begin);
  Copy(inputs, input_begin[steps], &p.inputs);
  Copy(ignored, input_begin[steps], &p.ignored);
  Copy(inplace_begin, steps + 1, &p.inplace_begin);
  for (int32_t k = 0; k < inplace_begin[steps]; ++k)
    p.inplace.push_back(
        Inplace{inplace[3 * k], inplace[3 * k + 1], static_cast<uint8_t>(inplace[3 * k + 2])});
  Copy(device, steps, &p.device);
  Copy(pool, steps, &p.pool);
  Copy(adds_into_first, steps, &p.adds_into_first);
  Copy(elements, entries, &p.elements);
  Copy(bytes, entries, &p.bytes);
  Copy(dtype, entries, &p.dtype);
  Copy(item_bytes, entries, &p.item_bytes);
  Copy(external, entries, &p.external);
  Copy(held, entries, &p.held);
  Copy(own_buffer, entries, &p.own_buffer);
  Model model;
  model.count_ignored = options[0] != 0;
  model.rounding = options[1];

  memonger::storage::Blocks b;
  memonger::storage::Replay(p, model, &b);
  memonger::storage::Assignment a;
  const Kind kind = static_cast<Kind>(options[2]);
  if (kind == Kind::kArena) memonger::storage::Smallest(b, model, &a);
  if (kind == Kind::kBest) memonger::storage::Packer().Best(b, model, &a);
  if (kind == Kind::kStock) memonger::storage::Stock(b, model, &a);
  for (size_t i = 0; i < b.blocks.size(); ++i) {
    const memonger::storage::Block& block = b.blocks[i];
    const int64_t row[7] = {block.start,  block.end,  block.bytes,     block.elements,
                            block.device, block.pool, block.own_buffer};
    std::copy(row, row + 7, blocks + 7 * i);
  }
  std::copy(b.released.begin(), b.released.end(), released);
  *num_released = static_cast<int32_t>(b.released.size());
  std::copy(b.block_of.begin(), b.block_of.end(), block_of);
  std::copy(b.inplace_index.begin(), b.inplace_index.end(), inplace_index);
  std::copy(a.buffer_of.begin(), a.buffer_of.end(), buffer_of);
  std::copy(a.offset_of.begin(), a.offset_of.end(), offset_of);
  std::copy(a.buffer_bytes.begin(), a.buffer_bytes.end(), buffer_bytes);
  const memonger::storage::Peak peak = memonger::storage::PeakLive(b);
  totals[0] = a.pool_bytes;
  totals[1] = a.printed_bytes;
  totals[2] = peak.bytes;
  totals[3] = peak.step;
  totals[4] = memonger::storage::LowerBound(b, model);
  totals[5] = static_cast<int64_t>(a.buffer_bytes.size());
  totals[6] = !a.offset_of.empty();
  totals[7] = a.placed;
  return static_cast<int32_t>(b.blocks.size());
}
