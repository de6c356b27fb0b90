/*
 * MXNet's own operators, run by ours on parts of a batch.
 *
 * A Delegate is an operator of MXNet with parsed attributes. What it computes with is looked up in
 * MXNet's registry when it runs, so it is the code that MXNet would run there: native or MKLDNN on
 * a CPU, cuDNN on a GPU.
 */
#ifndef MEMONGER_OPS_DELEGATES_DELEGATE_H_
#define MEMONGER_OPS_DELEGATES_DELEGATE_H_

#include <mxnet/ndarray.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/frame/common.h"

namespace memonger {
namespace ops {

using mxnet::NDArray;
using NDArrays = std::vector<NDArray>;
using Dictionary = std::unordered_map<std::string, std::string>;

class Delegate {
 public:
  Delegate() = default;
  // Parses `attributes` as MXNet does, with its errors.
  Delegate(const char* op, const std::string& name, const Dictionary& attributes);
  // Another operator that reads the same attributes: a gradient. They are not parsed again.
  Delegate As(const char* op) const;

  const NodeAttrs& attrs() const { return *attrs_; }

  // FCompute of the device that the context runs on.
  void Run(const OpContext& context, const Blobs& in, const Requests& request,
           const Blobs& out) const;
  // FComputeEx, which is for CPUs: MKLDNN where it can, else the native code.
  void Run(const OpContext& context, const NDArrays& in, const Requests& request,
           const NDArrays& out) const;
  // MXNet's choice among the two for these storage types.
  bool InferStorage(int device, mxnet::DispatchMode* mode, std::vector<int>* in,
                    std::vector<int>* out) const;
  // The same for an operator of ours that has other arrays, all dense; `inputs` and `outputs` are
  // the numbers of MXNet's.
  bool InferDense(int inputs, int outputs, int device, mxnet::DispatchMode* mode,
                  std::vector<int>* in, std::vector<int>* out) const;

 private:
  // Shared: MXNet copies the attributes of every node several times.
  std::shared_ptr<const NodeAttrs> attrs_;
};

// Samples begin to end - 1, in place. MKLDNN's layouts cannot be cut: see InDefaultLayout.
TBlob Samples(const TBlob& array, int64_t begin, int64_t end);
inline NDArray Samples(const NDArray& array, int64_t begin, int64_t end) {
  return array.Slice(begin, end);
}

// The array, or a copy of it when MKLDNN keeps it in a layout of its own.
inline TBlob InDefaultLayout(const TBlob& array) { return array; }
inline NDArray InDefaultLayout(const NDArray& array) {
  return array.IsMKLDNNData() ? array.Reorder2Default() : array;
}

// A copy, at `place`, of an array that MKLDNN keeps in a layout of its own.
NDArray DefaultLayoutAt(const NDArray& array, void* place);

// The numbers in MXNet's layout; those of an array that MKLDNN keeps in a layout of its own as a
// copy in the temporary space, which lives as long as `copy`.
inline TBlob Plain(const OpContext&, const TBlob& array, NDArray*) { return array; }
TBlob Plain(const OpContext& context, const NDArray& array, NDArray* copy);

inline bool IsInDefaultLayout(const TBlob&) { return true; }
inline bool IsInDefaultLayout(const NDArray& array) { return !array.IsMKLDNNData(); }

// Where a whole result is written; what MKLDNN has there in a layout of its own is given up.
inline TBlob BlobToWrite(const TBlob& array) { return array; }
inline TBlob BlobToWrite(const NDArray& array) {
  if (array.IsMKLDNNData()) const_cast<NDArray&>(array).InvalidateMKLDNNData();
  return array.data();
}

inline const TShape& ShapeOf(const TBlob& array) { return array.shape_; }
inline const TShape& ShapeOf(const NDArray& array) { return array.shape(); }

inline TBlob BlobOf(const TBlob& array) { return array; }
inline TBlob BlobOf(const NDArray& array) { return array.data(); }

// Requests of the second and later parts of a batch: they add to what the first wrote.
inline OpReqType Later(OpReqType request) {
  return request == mxnet::kNullOp ? mxnet::kNullOp : mxnet::kAddTo;
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_DELEGATES_DELEGATE_H_
