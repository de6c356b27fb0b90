#include "ops/frame/refuse.h"

#include <map>

namespace memonger {
namespace ops {
namespace {

constexpr char kInOperator[] = ", in operator ";
constexpr char kStack[] = "\nStack trace";

std::string Described(const NodeAttrs& attrs) {
  std::string text = attrs.op->name + "(name=\"" + attrs.name + "\"";
  for (const auto& item : std::map<std::string, std::string>(attrs.dict.begin(), attrs.dict.end()))
    text += ", " + item.first + "=\"" + item.second + "\"";
  return text + ")";
}

}  // namespace

void Refuse(const NodeAttrs& attrs, const std::string& reason) {
  const std::string node = attrs.name.empty() ? "" : "(" + attrs.name + ")";  // none in mx.nd
  throw dmlc::Error(attrs.op->name + node + ": " + reason);
}

void NameOperator(const NodeAttrs& attrs, const std::exception& error) {
  const std::string text = error.what(), &name = attrs.op->name;
  if (text.compare(0, name.size(), name) == 0) throw;
  Refuse(attrs, text.substr(0, text.find(kStack)));
}

void RefuseAttribute(const std::string& reason) { throw dmlc::ParamError(reason); }

void ParseNamed(const std::function<void(NodeAttrs*)>& parser, NodeAttrs* attrs) {
  try {
    parser(attrs);
  } catch (const dmlc::Error& error) {
    std::string text = error.what();
    for (const char* end : {kInOperator, kStack})
      text.resize(std::min(text.size(), text.find(end)));
    throw dmlc::ParamError(text + kInOperator + Described(*attrs));
  }
}

}  // namespace ops
}  // namespace memonger
