#include "./register.h"

namespace memonger {
namespace ops {

void RegisterAll() {
  RegisterMaskRelu();
  RegisterMaskLeakyRelu();
  RegisterMaskClip();
  RegisterMaskDropout();
  RegisterMaxPool();
  RegisterInplaceBatchNorm();
  RegisterBatchNormRelu();
  RegisterConvolution();
  RegisterBnReluConvolution();
}

}  // namespace ops
}  // namespace memonger
