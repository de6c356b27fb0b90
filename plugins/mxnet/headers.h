/* The headers of MXNet that most sources include; build.py has them read once. */
#ifndef MEMONGER_MXNET_HEADERS_H_
#define MEMONGER_MXNET_HEADERS_H_

// clang-format off: the shim comes first.
#include "mxnet/abi_gcc48.h"
// clang-format on

#include <dmlc/parameter.h>
#include <mxnet/base.h>
#include <mxnet/ndarray.h>
#include <mxnet/op_attr_types.h>
#include <nnvm/graph.h>
#include <nnvm/node.h>
#include <nnvm/op.h>
#include <nnvm/op_attr_types.h>
#include <nnvm/pass.h>

#endif  // MEMONGER_MXNET_HEADERS_H_
