"""How much arithmetic and memory traffic an operator needs: a pure function of its shapes.

Formulas count multiply-adds of matrix-like operators exactly, and bytes as every tensor read or
written once; second passes over a tensor are counted apart. Backward operators are counted by what
they compute: a convolution's gradient is one convolution for the data and one for the weight,
each only if some op reads it. Nothing is known about operators beyond these tables: one without
an entry is bound by memory, which is right for nearly all of MXNet's.
"""
from __future__ import annotations

import math
from typing import Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from ...graph.types import DTYPES


class TensorType(NamedTuple):
    """Shape and dtype of a tensor."""

    shape: Tuple[int, ...]
    dtype: str = "float32"

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.elements * DTYPES[self.dtype]


class Work(NamedTuple):
    """What one run of an operator takes."""

    flops: float
    moved_bytes: float
    #: True for products of matrices, which tensor cores speed up.
    is_matrix: bool = False
    #: Bytes read once more in a second pass over a tensor; not part of ``moved_bytes``.
    again_bytes: float = 0.0
    #: Operators of MXNet's, or kernels, that it starts one after the other.
    calls: int = 1

    def without(self, other: "Work") -> "Work":
        """The work besides that of a part."""
        return Work(max(0.0, self.flops - other.flops),
                    max(0.0, self.moved_bytes - other.moved_bytes), False, self.again_bytes,
                    max(1, self.calls - other.calls))


class _Call(NamedTuple):
    """One operator with its tensors; ``wanted`` tells which outputs are read."""

    attributes: Mapping[str, str]
    inputs: Sequence[TensorType]
    outputs: Sequence[TensorType]
    wanted: Sequence[bool]
    backward: bool

    def wants(self, position: int) -> bool:
        return position < len(self.wanted) and self.wanted[position]

    def traffic(self) -> int:
        """Each input read and each wanted output written once."""
        return (sum(t.size_bytes for t in self.inputs)
                + sum(t.size_bytes for t, w in zip(self.outputs, self.wanted) if w))


#: Operations for each element of operators that are not plain arithmetic.
_ELEMENT_FLOPS = {"exp": 8, "log": 8, "log_softmax": 12, "softmax": 12, "SoftmaxOutput": 12,
                  "SoftmaxActivation": 12, "sigmoid": 10, "tanh": 12, "erf": 15, "gelu": 20,
                  "sin": 15, "cos": 15, "sqrt": 4, "rsqrt": 5, "softsign": 5, "softrelu": 16,
                  "Dropout": 10, "LeakyReLU": 2, "_power": 20, "_power_scalar": 20,
                  "broadcast_power": 20, "_div": 4, "elemwise_div": 4, "broadcast_div": 4,
                  "CTCLoss": 50, "smooth_l1": 4, "softmin": 12}
_ACTIVATIONS = {"relu": 1, "sigmoid": 10, "tanh": 12, "softrelu": 16, "softsign": 5,
                "leaky": 2, "elu": 9, "selu": 9, "gelu": 20, "prelu": 2, "rrelu": 10}
_SORTS = ("sort", "argsort", "topk")
_NORMALISATIONS = ("BatchNorm", "BatchNorm_v1", "LayerNorm", "InstanceNorm", "GroupNorm",
                   "L2Normalization", "_contrib_SyncBatchNorm", "_contrib_BatchNormWithReLU",
                   "CuDNNBatchNorm")
_GATHERS = ("Embedding", "take", "gather_nd", "pick", "one_hot", "batch_take",
            "_contrib_SparseEmbedding")
_SLICES = ("slice", "slice_axis", "slice_like", "SliceChannel", "_split_v2", "SequenceLast",
           "Crop", "_np_slice")


def _matrix(macs: float, call: _Call, tensors: Tuple[int, int, int]) -> Work:
    """Products for the outputs; backward: inputs are (gradient, left, right)."""
    if not call.backward:
        return Work(2 * macs + _extra(call), call.traffic(), True)
    gradient, left, right = (call.inputs[i].size_bytes for i in tensors)
    flops, moved = 0.0, 0.0
    for position, other in ((0, right), (1, left)):
        if call.wants(position):
            flops += 2 * macs
            moved += gradient + other + call.outputs[position].size_bytes
    if call.wants(2):  # the bias: a sum over the gradient
        flops += call.inputs[tensors[0]].elements
        moved += gradient
    return Work(flops, moved, True)


def _extra(call: _Call) -> int:
    return call.outputs[0].elements if len(call.inputs) > 2 else 0  # adding the bias


def _convolution(call: _Call) -> Work:
    weight = call.inputs[2 if call.backward else 1]
    result = call.inputs[0] if call.backward else call.outputs[0]
    return _matrix(result.elements * math.prod(weight.shape[1:]), call, (0, 1, 2))


def _parts(call: _Call, data: TensorType, weight: TensorType, result: TensorType) -> int:
    """Of the batch, one after the other: ``Convolver::Step`` of the plugin."""
    least, limit_mb = (int(call.attributes.get(name, 0)) for name in
                       ("micro_batch", "micro_batch_mb"))
    batch = max(1, data.shape[0])
    if not limit_mb:
        return -(-batch // least) if least else 1
    size_bytes = 4 * (data.elements + result.elements)
    limit = max(limit_mb << 20, 32 * weight.elements)
    if size_bytes <= limit:
        return 1
    return -(-batch // max(1, least, limit // max(1, size_bytes // batch)))


def _weight_gradient(call: _Call) -> Work:
    # Inputs are (gradient, data, weight); outputs the gradients of weight and bias.
    gradient, data, weight = call.inputs[:3]
    flops, moved = 0.0, 0.0
    if call.wants(0):
        flops += 2 * gradient.elements * math.prod(weight.shape[1:])
        moved += gradient.size_bytes + data.size_bytes + call.outputs[0].size_bytes
    if call.wants(1):
        flops += gradient.elements
        moved += gradient.size_bytes
    return Work(flops, moved, True)


def _data_gradient(call: _Call) -> Work:
    gradient, weight = call.inputs
    return Work(2 * gradient.elements * math.prod(weight.shape[1:]), call.traffic(), True)


def _norm_relu_convolution(call: _Call) -> Work:
    # Backward normalises once more, then takes the gradients of all three ops.
    data, weight = (call.inputs[1], call.inputs[8]) if call.backward else \
        (call.inputs[0], call.inputs[5])
    result = call.inputs[0] if call.backward else call.outputs[0]
    macs = result.elements * math.prod(weight.shape[1:])
    passes = 2 + (3 if call.backward else 0)  # of the normalised values, and of their gradient
    # Each part is normalised and convolved: in backward for two gradients.
    calls = 1 + (3 if call.backward else 2) * _parts(call, data, weight, result)
    return Work((4 if call.backward else 2) * macs + (22 if call.backward else 8) * data.elements,
                call.traffic() + passes * data.size_bytes + result.size_bytes * call.backward,
                True, data.size_bytes * (2 if call.backward else 1), calls)


class Operator(NamedTuple):
    """One operator with its tensors, as :func:`work` takes them."""

    kind: str
    attributes: Mapping[str, str]
    inputs: Sequence[TensorType]
    outputs: Sequence[TensorType]
    wanted: Sequence[bool]


def convolution_inside(op: Operator) -> Optional[Operator]:
    """MXNet's convolution that a fused operator runs; None where there is none."""
    if op.kind == "memonger_bn_relu_convolution" and len(op.inputs) > 5:
        return op._replace(kind="Convolution", inputs=(op.inputs[0], *op.inputs[5:]),
                           outputs=op.outputs[:1], wanted=op.wanted[:1])
    if op.kind == "_backward_memonger_bn_relu_convolution" and len(op.inputs) > 8:
        return op._replace(kind="_backward_Convolution",
                           inputs=(*op.inputs[:2], *op.inputs[8:]),
                           outputs=(op.inputs[1], *op.outputs[3:-1]),
                           wanted=(True, *op.wanted[3:-1]))
    return None


def _deconvolution(call: _Call) -> Work:
    data, weight = call.inputs[1:3] if call.backward else call.inputs[:2]
    return _matrix(data.elements * math.prod(weight.shape[1:]), call, (0, 1, 2))


def _deformable(call: _Call) -> Work:
    # data, offset[, mask], weight[, bias]; sampling reads four neighbours for each tap.
    weights = [t for t in call.inputs if len(t.shape) == 4][-1]
    result = call.inputs[0] if call.backward else call.outputs[0]
    macs = result.elements * math.prod(weights.shape[1:])
    return Work((6 if call.backward else 2) * macs, 2 * call.traffic(), True)


def _fully_connected(call: _Call) -> Work:
    weight = call.inputs[2 if call.backward else 1]
    result = call.inputs[0] if call.backward else call.outputs[0]
    return _matrix(result.elements * weight.shape[-1], call, (0, 1, 2))


def _product(call: _Call) -> Work:
    # (m, k) times (k, n): the three sizes multiply to (m k n) squared, however transposed.
    tensors = list(call.inputs[:3] if call.backward else (*call.inputs[:2], call.outputs[0]))
    return _matrix(math.sqrt(math.prod(float(t.elements) for t in tensors)), call, (0, 1, 2))


def _batch_product(call: _Call) -> Work:
    tensors = list(call.inputs[:3] if call.backward else (*call.inputs[:2], call.outputs[0]))
    batch = max(1, math.prod(tensors[0].shape[:-2]))
    macs = batch * math.sqrt(math.prod(t.elements / batch for t in tensors))
    return _matrix(macs, call, (0, 1, 2))


def _attention(call: _Call) -> Work:
    # _contrib_interleaved_matmul_*: (length, batch, heads * 3 (or 2) * size) and the attention
    # matrix (batch * heads, length, length) as an input or output.
    heads = int(call.attributes.get("heads", 1))
    every = [*call.inputs, *call.outputs]
    square = max((t for t in every if t.shape and t.shape[0] % heads == 0),
                 key=lambda t: t.elements)
    size = min(t.shape[-1] for t in every if len(t.shape) == 3) / heads
    macs = square.elements * max(1.0, size)
    return Work((4 if call.backward else 2) * macs, call.traffic(), True)


def _recurrent(call: _Call) -> Work:
    # Each weight is used once for each time step and sample; gradients for data and weights.
    data = next(t for t in call.inputs if len(t.shape) == 3)
    weights = max((t for t in call.inputs if len(t.shape) == 1), key=lambda t: t.elements)
    macs = data.shape[0] * data.shape[1] * weights.elements
    return Work(2 * macs * (2 if call.backward else 1), call.traffic(), True)


def _normalisation(call: _Call) -> Work:
    # One pass for the statistics, one to apply them; the same in backward.
    largest = max((t.size_bytes for t in call.inputs), default=0)
    again = sum(t.size_bytes for t in call.inputs if t.size_bytes == largest)
    elements = max((t.elements for t in call.inputs), default=0)
    each = 14 if call.backward else 8
    return Work(each * elements, call.traffic(), again_bytes=again)


def _pooling(call: _Call) -> Work:
    small, large = sorted((t.elements for t in (call.inputs[0], call.outputs[0])))
    window = 1
    kernel = call.attributes.get("kernel", "")
    if kernel and str(call.attributes.get("global_pool", "False")) not in ("True", "1"):
        for extent in kernel.strip("()[] ").split(","):
            window *= int(extent) if extent.strip() else 1
    return Work(max(large, small * window), call.traffic())


def _gather(call: _Call) -> Work:
    # Only the rows that are picked are read; backward clears the whole table, then adds.
    if not call.backward:
        picked = sum(t.size_bytes for t in call.outputs)
        return Work(0, 2 * picked + min(t.size_bytes for t in call.inputs))
    return Work(call.inputs[0].elements, call.traffic() + 2 * call.inputs[0].size_bytes)


def _slice(call: _Call) -> Work:
    if call.backward:
        return Work(0, call.traffic())
    return Work(0, 2 * sum(t.size_bytes for t, wanted in zip(call.outputs, call.wanted) if wanted))


def _local_response(call: _Call) -> Work:
    window = int(call.attributes.get("nsize", 5))
    return Work(call.inputs[0].elements * (window + 20), call.traffic())


def _sort(call: _Call) -> Work:
    elements = max(2, call.inputs[0].elements)
    return Work(4 * elements * math.log2(elements), 4 * call.traffic())


_FORMULAS: Dict[str, Callable[[_Call], Work]] = {
    "Convolution": _convolution, "Convolution_v1": _convolution,
    "memonger_avg_pool": _pooling,
    "memonger_split_convolution": _convolution,
    "memonger_split_convolution_weight": _weight_gradient,
    "memonger_split_convolution_data": _data_gradient,
    "memonger_bn_relu_convolution": _norm_relu_convolution,
    "Deconvolution": _deconvolution, "FullyConnected": _fully_connected, "dot": _product,
    "batch_dot": _batch_product, "_linalg_gemm2": _batch_product, "linalg_gemm2": _batch_product,
    "_linalg_gemm": _batch_product, "RNN": _recurrent, "Pooling": _pooling, "LRN": _local_response,
    "_contrib_DeformableConvolution": _deformable,
    "_contrib_ModulatedDeformableConvolution": _deformable,
    "_contrib_interleaved_matmul_selfatt_qk": _attention,
    "_contrib_interleaved_matmul_selfatt_valatt": _attention,
    "_contrib_interleaved_matmul_encdec_qk": _attention,
    "_contrib_interleaved_matmul_encdec_valatt": _attention,
    **dict.fromkeys(_NORMALISATIONS, _normalisation), **dict.fromkeys(_GATHERS, _gather),
    **dict.fromkeys(_SLICES, _slice), **dict.fromkeys(_SORTS, _sort),
}


def work(kind: str, attributes: Mapping[str, str], inputs: Sequence[TensorType],
         outputs: Sequence[TensorType], wanted: Optional[Sequence[bool]] = None) -> Work:
    """Arithmetic and traffic of one run of an operator.

    ``kind``: MXNet's name of the operator; ``_backward_<name>`` for a gradient.
    ``attributes``: as in the symbol; few formulas need any.
    ``inputs``: only those whose values are read.
    ``wanted``: which outputs anybody reads; all by default.
    An operator without tensors takes 0 bytes.
    """
    backward = kind.startswith("_backward_")
    base = kind[len("_backward_"):] if backward else kind
    base = {"linalg_gemm2": "_linalg_gemm2", "softmax_output": "SoftmaxOutput"}.get(base, base)
    if "_contrib_" + base in _FORMULAS:
        base = "_contrib_" + base
    call = _Call(attributes, inputs, outputs,
                 tuple(wanted) if wanted is not None else (True,) * len(outputs), backward)
    formula = _FORMULAS.get(base)
    if formula is None and base.startswith("memonger_") and ("norm" in base or "bn" in base):
        formula = _normalisation
    if formula is not None and inputs and outputs:
        try:
            return formula(call)
        except (IndexError, StopIteration, ValueError):
            pass  # not the tensors that the formula expects: bound by memory, as below
    elements = max((t.elements for t in (*inputs, *outputs)), default=0)
    each = _ELEMENT_FLOPS.get(base, 1)
    if base in ("Activation", "LeakyReLU", "memonger_activation"):
        each = _ACTIVATIONS.get(str(attributes.get("act_type", "relu")), 1)
    elif base == "memonger_gelu":
        each = _ACTIVATIONS["gelu"]
    again = 0
    if base in ("softmax", "log_softmax", "SoftmaxOutput", "SoftmaxActivation", "softmin"):
        again = inputs[0].size_bytes if inputs else 0
    return Work(each * elements, call.traffic(), again_bytes=again)
