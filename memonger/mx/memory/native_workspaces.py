"""Workspaces of MXNet's native CPU code, and the objects of its executors.

Of the native code only convolutions take much: ``Convolution`` unrolls one sample to a matrix
(im2col), however large the batch is. MKLDNN's are in :mod:`memonger.mx.memory.mkldnn`.
"""
from __future__ import annotations

import math
from typing import Mapping, Sequence, Tuple

from ...graph.types import DTYPES, Graph
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


def objects_bytes_per_op(mkldnn: bool, in_arena: bool) -> int:
    """Of MXNet's objects, for each op that an executor runs on a CPU."""
    return OBJECTS_BYTES_PER_OP[mkldnn] + (ARENA_BYTES_PER_OP[mkldnn] if in_arena else 0)


def native_workspaces(graph: Graph,
                      attributes: Sequence[Mapping[str, str]]) -> Tuple[int, ...]:
    """Bytes for each op of the graph without MKLDNN on a CPU.

    ``attributes``: those of each op, as in the symbol.
    """
    return tuple(max(op.workspace_bytes, native_bytes(graph, index, attributes[index]))
                 for index, op in enumerate(graph.ops))


def native_bytes(graph: Graph, index: int, attributes: Mapping[str, str]) -> int:
    """The same for one op."""
    op = graph.ops[index]
    backward = op.kind.startswith("_backward_")
    place = WEIGHT.get(op.kind[len("_backward_"):] if backward else op.kind)
    if place is None:
        return 0
    weight = graph.tensors[op.inputs[place[backward]]]
    result = graph.tensors[op.inputs[0] if backward else op.outputs[0]]
    axes = len(weight.shape) - 2
    if all(extent == default for name, default in (("kernel", 1), ("stride", 1), ("pad", 0))
           for extent in _extents(attributes, name, axes, default)):
        return 0  # a sample is its own matrix
    groups = int(attributes.get("num_group", 1))
    elements = math.prod(weight.shape[1:]) * groups * math.prod(result.shape[2:])
    return elements * DTYPES[result.dtype]


def _extents(attributes: Mapping[str, str], name: str, axes: int,
             default: int) -> Tuple[int, ...]:
    words = str(attributes.get(name, "")).strip("()[] ").split(",")
    return tuple(int(word) for word in words if word.strip()) or (default,) * axes
