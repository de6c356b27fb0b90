#include "mxnet/arena.h"

#include <mxnet/ndarray.h>
#include <mxnet/op_attr_types.h>
#include <mxnet/resource.h>
#include <nnvm/op_attr_types.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "mxnet/loops.h"
#include "mxnet/op_facts.h"

namespace memonger {

using mxnet::NDArray;
using mxnet::Resource;
using mxnet::ResourceRequest;
using nnvm::Graph;
using nnvm::IndexedGraph;
using nnvm::Op;

namespace {

const char kAttribute[] = "memonger_arena";

// What a graph with an arena carries.
struct Places {
  std::vector<int32_t> block_of;  // per entry; -1: not in the arena
  std::vector<int64_t> offset;    // per block
  std::vector<int64_t> bytes;     // per block
  int64_t arena_bytes = 0;
  std::shared_ptr<NDArray> memory;  // once placed
};
using PlacesPointer = std::shared_ptr<Places>;

// The beginning of a class of libmxnet 1.9.1 whose header the wheel does not carry
// (src/executor/graph_executor.h).
struct ExecutorHead {
  void* vtable;
  bool is_dynamic, need_gradients;
  Graph graph;
};

// The engine variable of an array, which NDArray keeps to itself. An explicit instantiation may
// name private members.
mxnet::Engine::VarHandle* VariableOf(const NDArray& array);
template <typename Member, Member chunk>
struct Variable {
  friend mxnet::Engine::VarHandle* VariableOf(const NDArray& array) { return &(array.*chunk)->var; }
};
template struct Variable<decltype(&NDArray::ptr_), &NDArray::ptr_>;

// An array of `bytes` bytes at `place` in `memory`, which it keeps. Whoever uses it waits for
// `variable`.
NDArray ArrayInside(const std::shared_ptr<NDArray>& memory, char* place, int64_t bytes,
                    const mxnet::Engine::VarHandle variable) {
  const mxnet::Context context = memory->ctx();
  const mxnet::TShape shape{static_cast<nnvm::dim_t>((bytes + 3) / 4)};
  const mxnet::TBlob blob(reinterpret_cast<float*>(place), shape, context.dev_mask(),
                          context.dev_id);
  // The array deletes its variable, so it gets its own back first.
  const auto give_back = std::make_shared<std::function<void()>>();
  const NDArray array(blob, context.dev_id, [memory, give_back]() { (*give_back)(); });
  mxnet::Engine::VarHandle* const used = VariableOf(array);
  const auto own = *used;
  *give_back = [used, own]() { *used = own; };
  *used = variable;
  return array;
}

thread_local bool placement_expected = false, asks_for_arena = false;
// While an executor with an arena is made in this thread, its ops ask for temporary space.
thread_local bool serializing = false;

Graph* GraphOf(mxnet::Executor* executor) {
  if (std::string(typeid(*executor).name()) != "N5mxnet4exec13GraphExecutorE")
    throw std::runtime_error("the executor is not MXNet's GraphExecutor");
  return &reinterpret_cast<ExecutorHead*>(executor)->graph;
}

PlacesPointer PlacesOf(const Graph& graph) {
  if (!graph.HasAttr(kAttribute)) return nullptr;
  return graph.GetAttr<PlacesPointer>(kAttribute);
}

// From now on `op` asks for temporary space whenever `serializing` is set, besides what it asks
// for anyway. Ops never look at requests behind their own.
void Serialize(const Op* op) {
  static auto* lock = new std::mutex();
  static auto* done = new std::unordered_set<const Op*>();
  std::lock_guard<std::mutex> guard(*lock);
  if (!done->insert(op).second) return;
  const int plevel = 100;
  Op* changed = const_cast<Op*>(op);
  const auto add = [](std::vector<ResourceRequest> requests) {
    if (!serializing) return requests;
    for (const ResourceRequest& request : requests)
      if (request.type == ResourceRequest::kTempSpace) return requests;
    requests.emplace_back(ResourceRequest::kTempSpace);
    return requests;
  };
  const auto& extended = Op::GetAttr<mxnet::FResourceRequestEx>("FResourceRequestEx");
  if (extended.count(op)) {
    const mxnet::FResourceRequestEx original = extended[op];
    changed->set_attr<mxnet::FResourceRequestEx>(
        "FResourceRequestEx",
        [original, add](const nnvm::NodeAttrs& attrs, const int device,
                        const mxnet::DispatchMode mode) {
          return add(original(attrs, device, mode));
        },
        plevel);
    return;
  }
  const auto& plain = Op::GetAttr<mxnet::FResourceRequest>("FResourceRequest");
  mxnet::FResourceRequest original;
  if (plain.count(op)) original = plain[op];
  changed->set_attr<mxnet::FResourceRequest>(
      "FResourceRequest",
      [original, add](const nnvm::NodeAttrs& attrs) {
        return add(original ? original(attrs) : std::vector<ResourceRequest>());
      },
      plevel);
}

mxnet::Engine::VarHandle TemporarySpace(const OpExecutorHead& op) {
  for (const Resource& resource : op.op_ctx.requested)
    if (resource.req.type == ResourceRequest::kTempSpace) return resource.var;
  return nullptr;
}

// Checks that everything is as this file believes; returns the variable that all ops share.
mxnet::Engine::VarHandle Check(const Graph& graph, const OpExecutors& ops) {
  const IndexedGraph& index = graph.indexed_graph();
  if (ops.size() != index.num_nodes()) throw std::runtime_error("an executor's ops are missing");
  mxnet::Engine::VarHandle shared = nullptr;
  for (uint32_t id = 0; id < index.num_nodes(); ++id) {
    if (index[id].source->is_variable() || RunsByItself(index[id].source->op()->name)) continue;
    const auto& op = *reinterpret_cast<const OpExecutorHead*>(ops[id].get());
    const bool skipped = op.out_array.empty() && op.in_array.empty();  // added in place elsewhere
    if (!skipped && (op.in_array.size() != index[id].inputs.size() ||
                     op.out_array.size() != index[id].source->num_outputs()))
      throw std::runtime_error("an op's arrays are not where they are expected");
    const auto variable = TemporarySpace(op);
    if (!shared) shared = variable;
    if (!variable || variable != shared)
      throw std::runtime_error("ops of the executor would run out of order");
  }
  return shared;
}

}  // namespace

void ExpectPlacement() {
  placement_expected = true;
  asks_for_arena = serializing = false;
}

void LookForArenaMark(const std::vector<nnvm::NodeEntry>& outputs) {
  if (!placement_expected || asks_for_arena) return;
  nnvm::DFSVisit(outputs, [](const nnvm::ObjectPtr& node) {
    asks_for_arena = asks_for_arena || Attribute(*node, kStorageMark) == "arena";
  });
}

bool WantsArena() { return placement_expected && asks_for_arena; }

void MarkOwnBuffers(const Graph& graph, storage::Program* program) {
  const IndexedGraph& index = graph.indexed_graph();
  program->own_buffer.assign(index.num_node_entries(), 0);
  for (uint32_t id = 0; id < index.num_nodes(); ++id) {
    const auto& node = index[id];
    if (node.source->is_variable()) continue;
    const uint32_t num_inputs = static_cast<uint32_t>(node.inputs.size());
    for (uint32_t position : OwnBuffers(*node.source)) {
      const uint32_t entry = position < num_inputs ? index.entry_id(node.inputs[position])
                                                   : index.entry_id(id, position - num_inputs);
      program->own_buffer[entry] = 1;
    }
  }
}

void PlanArena(const storage::Blocks& blocks, const storage::Assignment& arena, Graph* graph,
               std::vector<int>* ids) {
  PlacesPointer places = std::make_shared<Places>();
  std::vector<bool> inside(blocks.blocks.size());
  int next_id = 0;
  for (int id : *ids) next_id = std::max(next_id, id + 1);
  std::vector<int> id_of(blocks.blocks.size(), -1);
  for (size_t i = 0; i < blocks.blocks.size(); ++i) {
    const storage::Block& block = blocks.blocks[i];
    inside[i] = !block.own_buffer && block.end < blocks.num_steps;
    places->offset.push_back(arena.offset_of[i]);
    places->bytes.push_back(block.bytes);
    if (inside[i])
      places->arena_bytes = arena.buffer_bytes[arena.buffer_of[i]];
    else
      id_of[i] = next_id++;
  }
  places->block_of = blocks.block_of;
  for (size_t entry = 0; entry < ids->size(); ++entry) {
    int32_t& block = places->block_of[entry];
    if (block < 0 || inside[block]) continue;
    (*ids)[entry] = id_of[block];
    block = -1;
  }
  graph->attrs[kAttribute] = std::make_shared<nnvm::any>(places);
  const IndexedGraph& index = graph->indexed_graph();
  for (uint32_t id = 0; id < index.num_nodes(); ++id) {
    if (index[id].source->is_variable()) continue;
    const Op* op = index[id].source->op();
    if (!RunsByItself(op->name)) Serialize(op);
  }
  serializing = true;
}

void Place(mxnet::Executor* executor, mxnet::Executor* shared) {
  placement_expected = serializing = false;
  if (!executor) return;
  const Graph& graph = *GraphOf(executor);
  const auto& ops = graph.GetAttr<OpExecutors>("op_execs");
  WaitBeforeLoops(graph, ops);
  const PlacesPointer places = PlacesOf(graph);
  if (!places || places->arena_bytes == 0) return;
  const auto variable = Check(graph, ops);
  const IndexedGraph& index = graph.indexed_graph();
  const auto& skipped = graph.GetAttr<std::vector<int>>("skip_plus_node");
  for (uint32_t id = 0; id < index.num_nodes(); ++id) {
    if (!skipped[id]) continue;  // the right operand is added where the left one lies
    const auto& inputs = index[id].inputs;
    places->block_of[index.entry_id(inputs[1])] = places->block_of[index.entry_id(inputs[0])];
  }
  const auto& contexts = graph.GetAttr<std::vector<mxnet::Context>>("context");
  mxnet::Context context;
  for (uint32_t id = 0; id < index.num_nodes(); ++id)
    if (!index[id].source->is_variable()) context = contexts[id];
  if (shared) {
    const Graph& other = *GraphOf(shared);
    const PlacesPointer theirs = PlacesOf(other);
    if (theirs && theirs->memory && theirs->arena_bytes >= places->arena_bytes &&
        theirs->memory->ctx() == context &&
        Check(other, other.GetAttr<OpExecutors>("op_execs")) == variable) {
      places->memory = theirs->memory;
      places->arena_bytes = theirs->arena_bytes;
    }
  }
  if (!places->memory) {
    const mxnet::TShape shape{static_cast<nnvm::dim_t>((places->arena_bytes + 3) / 4)};
    places->memory = std::make_shared<NDArray>(shape, context, false);
  }
  const std::shared_ptr<NDArray> memory = places->memory;
  char* base = static_cast<char*>(memory->data().dptr_);
  std::vector<NDArray> arrays(places->offset.size());
  const auto in_arena = [&](uint32_t entry, NDArray* array) {
    const int32_t block = places->block_of[entry];
    if (block < 0) return;
    NDArray& whole = arrays[block];
    if (whole.is_none())
      whole = ArrayInside(memory, base + places->offset[block], places->bytes[block], variable);
    const NDArray view = whole.AsArray(array->shape(), array->dtype());
    *array = view;
  };
  for (uint32_t id = 0; id < index.num_nodes(); ++id) {
    if (index[id].source->is_variable()) continue;
    auto& op = *reinterpret_cast<OpExecutorHead*>(ops[id].get());
    for (size_t i = 0; i < op.in_array.size(); ++i)
      in_arena(index.entry_id(index[id].inputs[i]), &op.in_array[i]);
    for (size_t i = 0; i < op.out_array.size(); ++i)
      in_arena(index.entry_id(id, static_cast<uint32_t>(i)), &op.out_array[i]);
  }
}

}  // namespace memonger
