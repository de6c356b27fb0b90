/* What users get wrong, told in one line: the operator, the node, what is wrong. */
#ifndef MEMONGER_OPS_FRAME_REFUSE_H_
#define MEMONGER_OPS_FRAME_REFUSE_H_

#include <exception>
#include <functional>
#include <sstream>
#include <string>

#include "ops/frame/common.h"

namespace memonger {
namespace ops {

// A text of anything that can be printed.
class Words {
 public:
  template <class T>
  Words& operator<<(const T& value) {
    stream_ << value;
    return *this;
  }
  operator std::string() const { return stream_.str(); }

 private:
  std::ostringstream stream_;
};

// For shapes, dtypes and values. (CHECK would add its condition, a file of ours and the stack.)
[[noreturn]] void Refuse(const NodeAttrs& attrs, const std::string& reason);

// Puts the operator in front of the error that is being handled, which may be MXNet's, where it
// does not name it. Throws.
[[noreturn]] void NameOperator(const NodeAttrs& attrs, const std::exception& error);

// The function with such errors.
template <class Result, class... Arguments>
std::function<Result(const NodeAttrs&, Arguments...)> Naming(
    std::function<Result(const NodeAttrs&, Arguments...)> function) {
  return [function](const NodeAttrs& attrs, Arguments... arguments) -> Result {
    try {
      return function(attrs, arguments...);
    } catch (const std::exception& error) {
      NameOperator(attrs, error);
    }
  };
}

// For attributes, in parsers: Operator::Parser adds the operator, the node and all attributes.
[[noreturn]] void RefuseAttribute(const std::string& reason);

// Runs a parser, ours or MXNet's own that it calls, and ends its errors as MXNet ends those of most
// of its operators: ", in operator NAME(name="NODE", KEY="VALUE", ...)".
void ParseNamed(const std::function<void(NodeAttrs*)>& parser, NodeAttrs* attrs);

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_FRAME_REFUSE_H_
