/* MXPlanMemory, then the better assignment of storage ids of core/memory/storage.h.
 *
 * Order and in-place choices stay MXNet's; only which block lies in which buffer changes, so any
 * executor that runs MXNet's plan runs this one. Executors of symbols that ask for it get an arena.
 * The stock plan stays wherever our replay of MXNet's reference counting does not arrive at MXNet's
 * own in-place choices. */
#include <mxnet/base.h>
#include <nnvm/graph_attr_types.h>
#include <nnvm/op_attr_types.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/memory/storage.h"
#include "mxnet/arena.h"
#include "mxnet/capture.h"
#include "mxnet/op_facts.h"
#include "mxnet/passes.h"
#include "mxnet/recompute.h"

namespace memonger {

using nnvm::Graph;
using nnvm::IndexedGraph;
using nnvm::Op;

namespace {

PlanInput TakeInput(const Graph& graph) {
  PlanInput input;
  input.node_range = {0, static_cast<uint32_t>(graph.indexed_graph().num_nodes())};
  if (graph.HasAttr("node_range"))
    input.node_range = graph.GetAttr<std::pair<uint32_t, uint32_t>>("node_range");
  if (graph.HasAttr("ref_count"))
    input.references = graph.GetAttr<std::vector<uint32_t>>("ref_count");
  if (graph.HasAttr("storage")) input.storage = graph.GetAttr<nnvm::StorageVector>("storage");
  return input;
}

// Bytes of one element; 4 where MXNet does not say the type.
int32_t ItemBytes(int type_flag) {
  switch (type_flag) {
    case mshadow::kUint8:
    case mshadow::kInt8:
    case mshadow::kBool:
      return 1;
    case mshadow::kFloat16:
    case mshadow::kBfloat16:
    case mshadow::kInt16:
    case mshadow::kUint16:
      return 2;
    case mshadow::kFloat64:
    case mshadow::kInt64:
    case mshadow::kUint64:
      return 8;
    default:
      return 4;
  }
}

// The order of execution that was planned. Entries without a storage id are external.
storage::Program MakeProgram(const Graph& graph, const PlanInput& input) {
  static const auto& inplace = Op::GetAttr<nnvm::FInplaceOption>("FInplaceOption");
  static const auto& identity = Op::GetAttr<nnvm::FInplaceIdentity>("FInplaceIdentity");
  static const auto& ignored = Op::GetAttr<nnvm::FIgnoreInputs>("FIgnoreInputs");
  const IndexedGraph& index = graph.indexed_graph();
  const auto& shapes = graph.GetAttr<mxnet::ShapeVector>("shape");
  const auto& dtypes = graph.GetAttr<nnvm::DTypeVector>("dtype");
  const auto& ids = graph.GetAttr<nnvm::StorageVector>("storage_id");
  const auto* device =
      graph.HasAttr("device") ? &graph.GetAttr<nnvm::DeviceVector>("device") : nullptr;
  storage::Program p;
  const size_t entries = index.num_node_entries();
  p.elements.assign(entries, 0);
  p.bytes.assign(entries, 0);
  p.dtype.assign(dtypes.begin(), dtypes.end());
  for (int type_flag : dtypes) p.item_bytes.push_back(ItemBytes(type_flag));
  p.external.assign(entries, 1);
  p.held.assign(entries, 0);
  p.references.assign(input.references.begin(), input.references.end());
  for (const auto& e : index.outputs()) ++p.held[index.entry_id(e)];
  for (size_t entry = 0; entry < entries; ++entry) {
    if (!mxnet::shape_is_known(shapes[entry])) continue;
    p.elements[entry] = static_cast<int64_t>(shapes[entry].Size());
    p.bytes[entry] = p.elements[entry] * p.item_bytes[entry];
  }
  for (uint32_t id = input.node_range.first; id < input.node_range.second; ++id) {
    const auto& node = index[id];
    if (node.source->is_variable()) continue;
    const Op* op = node.source->op();
    for (uint32_t i = 0; i < node.source->num_outputs(); ++i) {
      const uint32_t entry = index.entry_id(id, i);
      p.outputs.push_back(static_cast<int32_t>(entry));
      p.external[entry] = ids[entry] < 0;
    }
    std::vector<uint32_t> skip;
    if (ignored.contains(op)) skip = ignored[op](node.source->attrs);
    for (uint32_t i = 0; i < node.inputs.size(); ++i) {
      p.inputs.push_back(static_cast<int32_t>(index.entry_id(node.inputs[i])));
      p.ignored.push_back(std::count(skip.begin(), skip.end(), i) != 0);
    }
    if (inplace.contains(op)) {
      const auto pairs = inplace[op](node.source->attrs);
      std::vector<bool> same(pairs.size(), false);
      if (identity.contains(op)) same = identity[op](node.source->attrs);
      for (size_t k = 0; k < pairs.size(); ++k)
        p.inplace.push_back(storage::Inplace{pairs[k].first, pairs[k].second, same[k]});
    }
    p.device.push_back(device ? device->at(id) : 0);
    p.pool.push_back(0);
    p.adds_into_first.push_back(AddsIntoFirst(*node.source));
    p.output_begin.push_back(static_cast<int32_t>(p.outputs.size()));
    p.input_begin.push_back(static_cast<int32_t>(p.inputs.size()));
    p.inplace_begin.push_back(static_cast<int32_t>(p.inplace.size()));
  }
  return p;
}

// Which buffer MXNet gave each block; empty when blocks and ids contradict each other.
std::vector<int32_t> BuffersOf(const storage::Blocks& blocks, const std::vector<int>& ids) {
  std::vector<int32_t> buffers(blocks.blocks.size(), -1);
  for (size_t entry = 0; entry < ids.size(); ++entry) {
    const int32_t block = blocks.block_of[entry];
    if (block < 0) continue;
    if (buffers[block] >= 0 && buffers[block] != ids[entry]) return {};
    buffers[block] = ids[entry];
  }
  return buffers;
}

// An arena is for executors with one device and all shapes known.
bool FitsArena(const Graph& graph, const PlanInput& input) {
  if (!input.references.empty()) return false;  // CachedOp
  for (const auto& shape : graph.GetAttr<mxnet::ShapeVector>("shape"))
    if (!mxnet::shape_is_known(shape)) return false;
  if (!graph.HasAttr("device")) return true;
  const auto& devices = graph.GetAttr<nnvm::DeviceVector>("device");
  return std::count(devices.begin(), devices.end(), devices.front()) ==
         static_cast<std::ptrdiff_t>(devices.size());
}

// Ops that run again write all of their outputs, each time: some work one out of another that this
// run is not read for (moments), or refuse to run without it (BilinearSampler). MXNet plans memory
// for outputs that are never read, and then has them not written.
void WriteAllOutputs(const std::vector<uint32_t>& references, Graph* graph) {
  const IndexedGraph& index = graph->indexed_graph();
  std::vector<int> inplace = graph->GetAttr<std::vector<int>>("storage_inplace_index");
  std::vector<uint32_t> entries;
  for (uint32_t id = 0; id < index.num_nodes(); ++id) {
    const nnvm::Node& node = *index[id].source;
    if (node.is_variable() || node.num_outputs() < 2 || !RunsAgain(node)) continue;
    for (uint32_t i = 0; i < node.num_outputs(); ++i)
      if (inplace[index.entry_id(id, i)] == -2) entries.push_back(index.entry_id(id, i));
  }
  if (entries.empty()) return;
  for (uint32_t entry : entries) inplace[entry] = -1;
  graph->attrs["storage_inplace_index"] = std::make_shared<nnvm::any>(std::move(inplace));
  // CachedOp without static memory looks at the counts that it had memory planned for.
  for (const char* key : {"forward_ref_count", "full_ref_count", "backward_ref_count"}) {
    if (!graph->HasAttr(key)) continue;
    std::vector<uint32_t> readers = graph->GetAttr<std::vector<uint32_t>>(key);
    if (readers != references) continue;
    for (uint32_t entry : entries) ++readers[entry];
    graph->attrs[key] = std::make_shared<nnvm::any>(std::move(readers));
  }
}

}  // namespace

Graph PlanMemory(Graph graph, const nnvm::PassFunction& plan, bool improve) {
  const PlanInput input = TakeInput(graph);
  graph = plan(std::move(graph));
  if (!improve && !Capturing()) {
    WriteAllOutputs(input.references, &graph);
    return graph;
  }
  storage::Program program = MakeProgram(graph, input);
  storage::Model model;
  if (!input.references.empty()) model.rounding = 1;  // CachedOp allocates exact bytes
  const bool wants_arena = improve && WantsArena() && FitsArena(graph, input);
  if (wants_arena) MarkOwnBuffers(graph, &program);
  storage::Blocks blocks;
  storage::Replay(program, model, &blocks);
  std::vector<int> ids = graph.GetAttr<nnvm::StorageVector>("storage_id");
  const auto& inplace_index = graph.GetAttr<std::vector<int>>("storage_inplace_index");
  storage::Assignment used;
  used.buffer_of = BuffersOf(blocks, ids);
  const bool replayed =
      used.buffer_of.size() == blocks.blocks.size() &&
      std::equal(inplace_index.begin(), inplace_index.end(), blocks.inplace_index.begin());
  if (replayed) storage::Measure(blocks, model, &used);
  if (improve && replayed) {
    storage::Assignment best;
    if (wants_arena) {
      storage::Smallest(blocks, model, &best);
    } else {
      storage::Packer().Best(blocks, model, &best);
    }
    const bool in_arena = !best.offset_of.empty();
    if (in_arena) {
      PlanArena(blocks, best, &graph, &ids);
    } else if (best.pool_bytes < used.pool_bytes) {
      for (size_t entry = 0; entry < ids.size(); ++entry)
        if (blocks.block_of[entry] >= 0) ids[entry] = best.buffer_of[blocks.block_of[entry]];
    }
    if (in_arena || best.pool_bytes < used.pool_bytes) {
      graph.attrs["storage_id"] = std::make_shared<nnvm::any>(std::move(ids));
      graph.attrs["storage_allocated_bytes"] =
          std::make_shared<nnvm::any>(static_cast<size_t>(best.printed_bytes));
      used = best;
    }
  }
  if (Capturing()) Record(graph, input, used.pool_bytes, replayed);
  WriteAllOutputs(input.references, &graph);
  return graph;
}

}  // namespace memonger
