#include "mxnet/capture.h"

#include <mxnet/base.h>
#include <mxnet/graph_attr_types.h>
#include <mxnet/op_attr_types.h>
#include <nnvm/graph_attr_types.h>
#include <nnvm/op_attr_types.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <unordered_map>

#include "mxnet/op_facts.h"
#include "ops/frame/common.h"

namespace memonger {

using nnvm::IndexedGraph;
using nnvm::Node;
using nnvm::Op;

namespace {

// One text for each capture that is open in this thread, the innermost last.
thread_local std::vector<std::string> open;

void Append(const std::string& record, std::string* records) {
  if (!records->empty() && !record.empty()) *records += ",\n";
  *records += record;
}

class Json {
 public:
  explicit Json(std::string* out) : out_(*out) {}
  void Raw(const char* text) { out_ += text; }
  // The beginning of a field behind another one.
  Json& Field(const char* name) {
    out_ += std::string(",\"") + name + "\":";
    return *this;
  }
  void Number(int64_t value) { out_ += std::to_string(value); }
  void String(const std::string& text) {
    out_ += '"';
    for (unsigned char c : text) {
      if (c == '"' || c == '\\') {
        out_ += '\\';
        out_ += static_cast<char>(c);
      } else if (c < 32) {
        char escaped[8];
        std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
        out_ += escaped;
      } else {
        out_ += static_cast<char>(c);
      }
    }
    out_ += '"';
  }
  template <class Range, class Write>
  void List(const Range& range, Write write) {
    out_ += '[';
    bool first = true;
    for (const auto& item : range) {
      if (!first) out_ += ',';
      first = false;
      write(item);
    }
    out_ += ']';
  }
  template <class Range>
  void Numbers(const Range& range) {
    List(range, [this](int64_t value) { Number(value); });
  }
  template <class Entries>
  void NodeEntries(const Entries& entries) {
    List(entries, [this](const IndexedGraph::NodeEntry& e) {
      Numbers(std::array<int64_t, 2>{e.node_id, e.index});
    });
  }

 private:
  std::string& out_;
};

// As numpy calls it, which has no bfloat16: two bytes.
std::string DTypeName(int type) {
  if (type == mshadow::kBfloat16) return "uint16";
  const std::string name = ops::TypeName(type);
  return name == "unknown" ? "float32" : name;
}

using Reasons = std::unordered_map<const Node*, std::string>;

// What an op on the device asks for; most ops ask for the same on all.
std::vector<mxnet::ResourceRequest> Resources(const Node& node, const mxnet::Context& context) {
  static const auto& plain = Op::GetAttr<mxnet::FResourceRequest>("FResourceRequest");
  static const auto& by_device = Op::GetAttr<mxnet::FResourceRequestEx>("FResourceRequestEx");
  if (by_device.contains(node.op()))
    return by_device[node.op()](node.attrs, context.dev_mask(), mxnet::DispatchMode::kFCompute);
  if (plain.contains(node.op())) return plain[node.op()](node.attrs);
  return {};
}

void WriteOpFacts(const Node& node, const mxnet::Context& context, const Reasons& reasons,
                  Json* json) {
  static const auto& inplace = Op::GetAttr<nnvm::FInplaceOption>("FInplaceOption");
  static const auto& identity = Op::GetAttr<nnvm::FInplaceIdentity>("FInplaceIdentity");
  static const auto& ignored = Op::GetAttr<nnvm::FIgnoreInputs>("FIgnoreInputs");
  const Op* op = node.op();
  if (inplace.contains(op)) {
    const auto pairs = inplace[op](node.attrs);
    std::vector<bool> same(pairs.size(), false);
    if (identity.contains(op)) same = identity[op](node.attrs);
    size_t at = 0;
    json->Field("inplace").List(pairs, [&](const std::pair<int, int>& pair) {
      json->Numbers(std::array<int64_t, 3>{pair.first, pair.second, same[at++]});
    });
  }
  if (ignored.contains(op)) json->Field("ignored_inputs").Numbers(ignored[op](node.attrs));
  if (MakesState(node)) json->Field("makes_state").Number(1);
  const auto resources = Resources(node, context);
  if (!resources.empty()) {
    json->Field("resources").List(resources, [&](const mxnet::ResourceRequest& request) {
      json->Number(static_cast<int>(request.type));
    });
  }
  const auto reason = reasons.find(&node);
  if (reason != reasons.end()) json->Field("not_recomputable_because").String(reason->second);
  const auto kept = KeptOutputs(node);
  if (!kept.empty()) json->Field("kept_outputs").Numbers(kept);
  const auto own = OwnBuffers(node);
  if (!own.empty()) json->Field("own_buffers").Numbers(own);
  if (AddsIntoFirst(node)) json->Field("adds_into_first").Number(1);
  const auto unwritten = UnwrittenOutputs(node);
  if (!unwritten.empty()) json->Field("unwritten_outputs").Numbers(unwritten);
  if (NeedsReader(node, context.dev_mask() == mshadow::gpu::kDevMask))
    json->Field("needs_reader").Number(1);
}

// Whether the nodes of a graph run on more than one device.
bool Spread(const std::vector<mxnet::Context>* contexts) {
  return contexts && std::any_of(contexts->begin(), contexts->end(),
                                 [&](const mxnet::Context& c) { return c != contexts->front(); });
}

std::string Name(const mxnet::Context& context) {
  return (context.dev_mask() == mshadow::gpu::kDevMask ? "gpu(" : "cpu(") +
         std::to_string(context.dev_id) + ")";
}

void WriteNode(const IndexedGraph& index, uint32_t id, const mxnet::Context& context, bool spread,
               const nnvm::DeviceVector* device, const mxnet::DispatchModeVector* modes,
               const Reasons& reasons, Json* json) {
  const Node& node = *index[id].source;
  json->Raw("{\"op\":");
  json->String(node.is_variable() ? "null" : node.op()->name);
  json->Field("name").String(node.attrs.name);
  json->Field("num_outputs").Number(node.num_outputs());
  if (spread) json->Field("context").String(Name(context));
  json->Field("attrs").Raw("{");
  const std::map<std::string, std::string> sorted(node.attrs.dict.begin(), node.attrs.dict.end());
  bool first = true;
  for (const auto& item : sorted) {
    if (!first) json->Raw(",");
    first = false;
    json->String(item.first);
    json->Raw(":");
    json->String(item.second);
  }
  json->Raw("}");
  json->Field("inputs").NodeEntries(index[id].inputs);
  json->Field("control_deps").Numbers(index[id].control_deps);
  if (!node.is_variable()) {
    if (device) json->Field("device").Number(device->at(id));
    if (modes && modes->at(id) == mxnet::DispatchMode::kFCompute)
      json->Field("default_layout").Number(1);
    WriteOpFacts(node, context, reasons, json);
  }
  json->Raw("}");
}

}  // namespace

void BeginCapture() { open.emplace_back(); }

std::string EndCapture() {
  if (!Capturing()) return "[]";
  const std::string records = std::move(open.back());
  open.pop_back();
  if (!open.empty()) Append(records, &open.back());
  return "[" + records + "]";
}

bool Capturing() { return !open.empty(); }

void Record(const nnvm::Graph& graph, const PlanInput& input, int64_t pool_bytes, bool replayed) {
  const IndexedGraph& index = graph.indexed_graph();
  const auto* device =
      graph.HasAttr("device") ? &graph.GetAttr<nnvm::DeviceVector>("device") : nullptr;
  const auto* contexts =
      graph.HasAttr("context") ? &graph.GetAttr<std::vector<mxnet::Context>>("context") : nullptr;
  const auto* modes = graph.HasAttr("dispatch_mode")
                          ? &graph.GetAttr<mxnet::DispatchModeVector>("dispatch_mode")
                          : nullptr;
  const auto& shapes = graph.GetAttr<mxnet::ShapeVector>("shape");
  const auto& dtypes = graph.GetAttr<nnvm::DTypeVector>("dtype");
  std::string record;
  Json json(&record);
  // An executor lets the planner count references; CachedOp hands its own counts over.
  json.Raw(input.references.empty() ? "{\"part\":\"executor\""
           : input.node_range.first ? "{\"part\":\"cached_backward\""
                                    : "{\"part\":\"cached_forward\"");
  json.Field("node_range")
      .Numbers(std::array<int64_t, 2>{input.node_range.first, input.node_range.second});
  json.Field("references").Numbers(input.references);
  json.Field("given_storage").Numbers(input.storage);
  json.Field("nodes").Raw("[");
  std::vector<const Node*> all;
  for (uint32_t id = 0; id < index.num_nodes(); ++id) all.push_back(index[id].source);
  const Reasons reasons = KeepReasons(all);
  const bool spread = Spread(contexts);
  for (uint32_t id = 0; id < index.num_nodes(); ++id) {
    if (id) json.Raw(",\n");
    WriteNode(index, id, contexts ? (*contexts)[id] : mxnet::Context::CPU(), spread, device, modes,
              reasons, &json);
  }
  json.Raw("]");
  json.Field("outputs").NodeEntries(index.outputs());
  json.Field("entries").Raw("{\"storage_id\":");
  json.Numbers(graph.GetAttr<nnvm::StorageVector>("storage_id"));
  json.Field("inplace_index").Numbers(graph.GetAttr<std::vector<int>>("storage_inplace_index"));
  json.Field("dtype").List(dtypes, [&](int type_flag) { json.String(DTypeName(type_flag)); });
  json.Field("shape").List(shapes, [&](const mxnet::TShape& shape) {
    if (!mxnet::shape_is_known(shape)) return json.Raw("null");  // known when it runs
    json.Numbers(shape);
  });
  json.Raw("}");
  json.Field("storage_allocated_bytes").Number(graph.GetAttr<size_t>("storage_allocated_bytes"));
  json.Field("pool_bytes").Number(pool_bytes);
  json.Field("replayed").Raw(replayed ? "true}" : "false}");
  Append(record, &open.back());
}

}  // namespace memonger
