/* The operators of the plugin; RegisterAll() enters them into MXNet's registry. */
#ifndef MEMONGER_OPS_REGISTER_H_
#define MEMONGER_OPS_REGISTER_H_

namespace memonger {
namespace ops {

void RegisterMasks();
void RegisterMaskDropout();
void RegisterMaxPool();
void RegisterInplaceBatchNorm();
void RegisterBatchNormRelu();
void RegisterSplitConvolution();
void RegisterBnReluConvolution();
void RegisterKeepLess();
void RegisterLayerNorm();
void RegisterOutputGelu();

// The GPU implementations, of those that have one.
void RegisterGpu();

// For tests on machines without a GPU: data in CPU memory goes to the GPU implementations, whose
// driver must then be a pretended one.
void RegisterGpuAsCpu();

void RegisterAll();

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_REGISTER_H_
