// The parameters' tables and parsers, compiled once for all operators.
#include "ops/frame/params.h"

namespace memonger {
namespace ops {

template <class Param>
void ParseParam(NodeAttrs* attrs) {
  Param param;
  param.Init(attrs->dict, dmlc::parameter::kAllowHidden);
  attrs->parsed = std::move(param);
}

template <class Param>
std::vector<dmlc::ParamFieldInfo> FieldsOf() {
  return Param::__FIELDS__();
}

#define MEMONGER_PARAMETERS(PARAM)             \
  DMLC_REGISTER_PARAMETER(PARAM);              \
  template void ParseParam<PARAM>(NodeAttrs*); \
  template std::vector<dmlc::ParamFieldInfo> FieldsOf<PARAM>()

MEMONGER_PARAMETERS(MaskReluParam);
MEMONGER_PARAMETERS(MaskLeakyReluParam);
MEMONGER_PARAMETERS(MaskClipParam);
MEMONGER_PARAMETERS(GeluParam);
MEMONGER_PARAMETERS(MaskDropoutParam);
MEMONGER_PARAMETERS(MaxPoolParam);
MEMONGER_PARAMETERS(BatchNormParam);
MEMONGER_PARAMETERS(InplaceBatchNormParam);
MEMONGER_PARAMETERS(LayerNormParam);
MEMONGER_PARAMETERS(ConvolutionWindow);
MEMONGER_PARAMETERS(ConvolutionSettings);

}  // namespace ops
}  // namespace memonger
