// Which blocks lie in an arena, and the arenas of a step: see Arena in storage.h. Where the blocks
// lie in it is skyline.cc's.
#include <algorithm>
#include <map>
#include <utility>

#include "core/memory/skyline.h"
#include "core/memory/storage.h"

namespace memonger {
namespace storage {

namespace {

Skyline Load(const Blocks& blocks, const std::vector<int32_t>& members, int64_t unit) {
  Skyline skyline;
  for (int32_t id : members) {
    const Block& block = blocks.blocks[id];
    skyline.Add(block.start, block.end, RoundUp(block.bytes, unit));
  }
  return skyline;
}

// More than this much work, tries times the square of the blocks, takes seconds.
constexpr int64_t kMostWork = 1200000000;

}  // namespace

void Arena(const Blocks& b, const Model& model, Assignment* result, int64_t wanted) {
  const size_t count = b.blocks.size();
  std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> groups;
  for (size_t i = 0; i < count; ++i) {
    groups[{b.blocks[i].pool, b.blocks[i].device}].push_back(static_cast<int32_t>(i));
  }
  result->buffer_of.assign(count, -1);
  result->offset_of.assign(count, 0);
  result->buffer_bytes.clear();
  std::vector<int32_t> inside;
  std::vector<int64_t> offsets;
  for (const Block& block : b.blocks)
    if (block.own_buffer || block.end >= b.num_steps)
      wanted -= RoundUp(block.bytes, model.rounding);
  for (const auto& group : groups) {
    inside.clear();
    for (int32_t id : group.second) {
      if (b.blocks[id].own_buffer || b.blocks[id].end >= b.num_steps) continue;
      inside.push_back(id);
    }
    if (!inside.empty()) {
      Skyline skyline = Load(b, inside, model.alignment);
      const int64_t bound = skyline.Bound(), count = static_cast<int64_t>(inside.size());
      const int64_t enough = std::max(bound + bound / 1024, groups.size() == 1 ? wanted : 0);
      const int64_t tries = std::min(10 * int64_t{model.effort}, kMostWork / (count * count));
      const int64_t bytes = skyline.Search(enough, tries, &offsets);
      result->placed += skyline.placed();
      for (size_t k = 0; k < inside.size(); ++k) {
        result->buffer_of[inside[k]] = static_cast<int32_t>(result->buffer_bytes.size());
        result->offset_of[inside[k]] = offsets[k];
      }
      result->buffer_bytes.push_back(bytes);
    }
    for (int32_t id : group.second) {
      if (result->buffer_of[id] >= 0) continue;
      result->buffer_of[id] = static_cast<int32_t>(result->buffer_bytes.size());
      result->buffer_bytes.push_back(RoundUp(b.blocks[id].bytes, model.rounding));
    }
  }
  result->pool_bytes = 0;
  for (int64_t bytes : result->buffer_bytes) result->pool_bytes += bytes;
  result->printed_bytes = result->pool_bytes;
}

void Smallest(const Blocks& b, const Model& model, Assignment* result, int64_t wanted) {
  Arena(b, model, result, wanted);
  if (result->pool_bytes < LowerBound(b, model) || result->pool_bytes <= wanted) return;
  Assignment whole;
  Packer().Best(b, model, &whole);
  const int64_t placed = result->placed + whole.placed;
  if (whole.pool_bytes <= result->pool_bytes) *result = whole;
  result->placed = placed;
}

}  // namespace storage
}  // namespace memonger
