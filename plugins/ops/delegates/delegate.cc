#include "ops/delegates/delegate.h"

#include <algorithm>

namespace mxnet {

// Exported by libmxnet, from a header that the wheel does not carry (mkldnn_base-inl.h).
class MKLDNNStream {
 public:
  static MKLDNNStream* Get();
  void Submit(bool cleanup = true);
};

}  // namespace mxnet

namespace memonger {
namespace ops {

Delegate::Delegate(const char* op, const std::string& name, const Dictionary& attributes) {
  const auto attrs = std::make_shared<NodeAttrs>();
  attrs->op = nnvm::Op::Get(op);
  attrs->name = name;
  attrs->dict = attributes;
  if (attrs->op->attr_parser) attrs->op->attr_parser(attrs.get());
  attrs_ = attrs;
}

Delegate Delegate::As(const char* op) const {
  const auto attrs = std::make_shared<NodeAttrs>(*attrs_);
  attrs->op = nnvm::Op::Get(op);
  Delegate other;
  other.attrs_ = attrs;
  return other;
}

void Delegate::Run(const OpContext& context, const Blobs& in, const Requests& request,
                   const Blobs& out) const {
  static const auto& on_cpu = nnvm::Op::GetAttr<mxnet::FCompute>("FCompute<cpu>");
  static const auto& on_gpu = nnvm::Op::GetAttr<mxnet::FCompute>("FCompute<gpu>");
  const bool gpu = context.run_ctx.ctx.dev_mask() == mshadow::gpu::kDevMask;
  const auto& compute = gpu ? on_gpu : on_cpu;
  CHECK(compute.contains(attrs_->op))
      << attrs_->op->name << " cannot run on a " << (gpu ? "GPU" : "CPU") << " here";
  compute[attrs_->op](*attrs_, context, in, request, out);
}

void Delegate::Run(const OpContext& context, const NDArrays& in, const Requests& request,
                   const NDArrays& out) const {
  static const auto& compute = nnvm::Op::GetAttr<mxnet::FComputeEx>("FComputeEx<cpu>");
  compute[attrs_->op](*attrs_, context, in, request, out);
}

bool Delegate::InferStorage(int device, mxnet::DispatchMode* mode, std::vector<int>* in,
                            std::vector<int>* out) const {
  static const auto& infer = nnvm::Op::GetAttr<mxnet::FInferStorageType>("FInferStorageType");
  return infer[attrs_->op](*attrs_, device, mode, in, out);
}

bool Delegate::InferDense(int inputs, int outputs, int device, mxnet::DispatchMode* mode,
                          std::vector<int>* in, std::vector<int>* out) const {
  std::fill(out->begin(), out->end(), mxnet::kDefaultStorage);
  for (int& type : *in) {
    if (type == mxnet::kUndefinedStorage) type = mxnet::kDefaultStorage;
    if (type == mxnet::kDefaultStorage) continue;
    *mode = mxnet::DispatchMode::kFComputeFallback;
    return true;
  }
  std::vector<int> stock_in(inputs, mxnet::kDefaultStorage);
  std::vector<int> stock_out(outputs, mxnet::kUndefinedStorage);
  return InferStorage(device, mode, &stock_in, &stock_out);
}

TBlob Samples(const TBlob& array, int64_t begin, int64_t end) {
  TBlob part = array;
  const int64_t sample = array.shape_.ProdShape(1, array.shape_.ndim());
  part.shape_[0] = end - begin;
  part.dptr_ = static_cast<char*>(array.dptr_) +
               begin * sample * static_cast<int64_t>(mshadow::mshadow_sizeof(array.type_flag_));
  return part;
}

NDArray DefaultLayoutAt(const NDArray& array, void* place) {
  const mxnet::Context context = array.ctx();
  const TBlob blob(place, array.shape(), context.dev_mask(), array.dtype(), context.dev_id);
  NDArray copy(blob, context.dev_id);
  copy.CopyFrom(*array.GetMKLDNNData());
  mxnet::MKLDNNStream::Get()->Submit();
  return copy;
}

TBlob Plain(const OpContext& context, const NDArray& array, NDArray* copy) {
  if (!array.IsMKLDNNData()) return array.data();
  if (array.IsView()) {
    *copy = array.Reorder2Default();
    return copy->data();
  }
  const size_t bytes = array.shape().Size() * mshadow::mshadow_sizeof(array.dtype());
  *copy = DefaultLayoutAt(array, context.requested[0].get_host_space_internal(bytes));
  return copy->data();
}

}  // namespace ops
}  // namespace memonger
