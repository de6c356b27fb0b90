"""Workspaces of MXNet's native CPU code, and the objects of its executors.

``Convolution`` unrolls one sample to a matrix (im2col), however large the batch is;
``Deconvolution``, and bilinear upsampling, which is one, unrolls as many as its attribute
``workspace`` allows; sorting keeps values and indices of its whole input. Gradients of norms and of
broadcast sums work on arrays as large as what they read, and so do ``moments`` and losses over
classes. Gradients of linear algebra and of ``SequenceMask`` that are added to their arrays are made
beside them. Other operators take little, but for some of ``mx.np`` (``matmul``, ``where``), which
are not counted. MKLDNN's are in :mod:`memonger.mx.memory.mkldnn`.
"""
from __future__ import annotations

import math
from typing import AbstractSet, Mapping, Sequence, Tuple

from ...graph.types import DTYPES, Graph, Op
from .convolutions import WEIGHT

#: Bytes of MXNet's objects for each op that an executor runs (nodes, arrays' records, attributes,
#: engine operations): what unrolled LSTMs take more for each op more, with MKLDNN and without.
OBJECTS_BYTES_PER_OP = {True: 6500, False: 7350}
#: What each op takes more in an arena, whose tensors have records of their own. With MKLDNN
#: operators that know its layouts save as much.
ARENA_BYTES_PER_OP = {True: 0, False: 400}
#: They are counted in networks of at least so many ops. In others they are less than what two runs
#: of a process differ by.
OBJECTS_LEAST_OPS = 2000
#: Operators that sort their input.
_SORTS = ("topk", "sort", "argsort")
#: MXNet sorts with indices of so many bytes, and counts ``workspace`` in numbers of as many.
_INDEX_BYTES = 4
#: Normalize with the mean and deviation of parts of their data.
_NORMS = ("LayerNorm", "GroupNorm")
#: Operators whose gradient only sums up that of the output, for what was broadcast.
_BROADCAST_SUMS = ("broadcast_add", "broadcast_sub")
#: A convolution that reads each pixel at an offset, and where it keeps its weight.
_DEFORMABLE = "_contrib_DeformableConvolution"
_WEIGHT = {**WEIGHT, _DEFORMABLE: (2, 3)}
#: MXNet's default of the attribute ``workspace``, in MiB.
_WORKSPACE_MIB = 512


def objects_bytes_per_op(mkldnn: bool, in_arena: bool) -> int:
    """Of MXNet's objects, for each op that an executor runs on a CPU."""
    return OBJECTS_BYTES_PER_OP[mkldnn] + (ARENA_BYTES_PER_OP[mkldnn] if in_arena else 0)


def native_workspaces(graph: Graph, attributes: Sequence[Mapping[str, str]],
                      added: AbstractSet[int] = frozenset()) -> Tuple[int, ...]:
    """Bytes for each op of the graph without MKLDNN on a CPU.

    ``attributes``: those of each op, as in the symbol.
    ``added``: gradients that are added to what lies in their arrays.
    """
    return tuple(max(op.workspace_bytes, native_bytes(graph, index, attributes[index], added))
                 for index, op in enumerate(graph.ops))


def native_bytes(graph: Graph, index: int, attributes: Mapping[str, str],
                 added: AbstractSet[int] = frozenset()) -> int:
    """The same for one op."""
    op = graph.ops[index]
    backward = op.kind.startswith("_backward_")
    kind = op.kind[len("_backward_"):] if backward else op.kind
    if kind in _SORTS and not backward:
        return _sort_bytes(graph, op, attributes)
    if kind == "Deconvolution" or (kind == "UpSampling"
                                   and attributes.get("sample_type") == "bilinear"):
        return _deconvolution_bytes(graph, op, backward, attributes)
    weight_at = _WEIGHT.get(kind)
    if weight_at is None:
        return _gradient_bytes(graph, op, kind, added) if backward else _operator_bytes(graph, op)
    weight = graph.tensors[op.inputs[weight_at[backward]]]
    result = graph.tensors[op.inputs[0] if backward else op.outputs[0]]
    axes = len(weight.shape) - 2
    if kind != _DEFORMABLE and all(
            extent == default for name, default in (("kernel", 1), ("stride", 1), ("pad", 0))
            for extent in _extents(attributes, name, axes, default)):
        return 0  # a sample is its own matrix
    groups = int(attributes.get("num_group", 1))
    elements = math.prod(weight.shape[1:]) * groups * math.prod(result.shape[2:])
    return elements * DTYPES[result.dtype]


def _sort_bytes(graph: Graph, op: Op, attributes: Mapping[str, str]) -> int:
    """The sorted values, once more what the sort works on, and indices; a mask needs chosen ones.

    MXNet's ``TopKImpl``.
    """
    data = graph.tensors[op.inputs[0]]
    elements = math.prod(data.shape)
    chosen = elements if attributes.get("ret_typ") == "mask" else 0
    return elements * (2 * max(DTYPES[data.dtype], _INDEX_BYTES) + _INDEX_BYTES) + \
        chosen * _INDEX_BYTES


def _deconvolution_bytes(graph: Graph, op: Op, backward: bool,
                         attributes: Mapping[str, str]) -> int:
    """Samples unrolled to matrices, beside the samples: ``InitTemp`` of MXNet's Deconvolution."""
    result = graph.tensors[op.inputs[0] if backward else op.outputs[0]]
    data = graph.tensors[op.inputs[1] if backward else op.inputs[0]]
    weight = graph.tensors[op.inputs[2 if backward else 1]]
    if len(data.shape) < 3 or len(weight.shape) != len(data.shape):
        return 0
    pixels = math.prod(data.shape[2:])
    elements = (result.shape[1] * math.prod(weight.shape[2:]) + data.shape[1]) * pixels
    most = (int(attributes.get("workspace", _WORKSPACE_MIB)) << 20) // _INDEX_BYTES
    samples = max(1, min(data.shape[0], most // max(1, elements)))
    return samples * elements * DTYPES[result.dtype]


def _gradient_bytes(graph: Graph, op: Op, kind: str, added: AbstractSet[int]) -> int:
    sizes = [graph.tensors[t].size_bytes for t in op.inputs]
    if kind in _NORMS:  # the data normalized, its gradient, and what they are summed up to
        return 2 * sizes[1] + sizes[3]
    if kind in _BROADCAST_SUMS:
        shape = graph.tensors[op.inputs[0]].shape
        broadcast = any(graph.tensors[t].shape != shape for t in op.outputs)
        return math.prod(shape) * _INDEX_BYTES * broadcast
    if kind == "softmax_cross_entropy":
        return sizes[1]
    if kind == "SequenceMask" or kind.startswith("linalg_"):
        return max([graph.tensors[t].size_bytes for t in op.outputs if t in added] or [0])
    return 0


def _operator_bytes(graph: Graph, op: Op) -> int:
    tensors = [graph.tensors[t] for t in op.inputs]
    if op.kind == "moments":
        return tensors[0].size_bytes
    if op.kind == "softmax_cross_entropy":
        return tensors[0].size_bytes + tensors[1].size_bytes
    if op.kind != "CTCLoss":
        return 0
    steps, batch, classes = tensors[0].shape
    states = 2 * tensors[1].shape[1] + 1  # of the longest label, with blanks
    return batch * (classes * (steps + 1) + states * (steps + 4)) * DTYPES["float32"]


def _extents(attributes: Mapping[str, str], name: str, axes: int,
             default: int) -> Tuple[int, ...]:
    words = str(attributes.get(name, "")).strip("()[] ").split(",")
    return tuple(int(word) for word in words if word.strip()) or (default,) * axes
