#include "ops/register.h"

namespace memonger {
namespace ops {

void RegisterAll() {
  RegisterMasks();
  RegisterMaskDropout();
  RegisterMaxPool();
  RegisterInplaceBatchNorm();
  RegisterBatchNormRelu();
  RegisterSplitConvolution();
  RegisterBnReluConvolution();
  RegisterKeepLess();
  RegisterLayerNorm();
  RegisterOutputGelu();
  RegisterGpu();
}

}  // namespace ops
}  // namespace memonger
