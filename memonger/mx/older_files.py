"""Facts about operators for graphs in files of schema 1, which do not hold them.

Today's captures tell the same (``plugins/mxnet/op_facts.cc``).
"""
from __future__ import annotations

from dataclasses import replace
from typing import Tuple

from ..graph.types import Graph, Op

_RUN_BY_THEMSELVES = frozenset((
    "Custom", "_backward_Custom", "_NDArray", "_backward__NDArray", "_CrossDeviceCopy", "_copyto",
    "_foreach", "_backward_foreach", "_while_loop", "_backward_while_loop", "_cond",
    "_backward_cond", "_CachedOp", "_backward_CachedOp"))
_REARRANGED_WEIGHT = {"Convolution": 1, "Deconvolution": 1, "FullyConnected": 1}
_NEED_READERS = frozenset((
    "Convolution", "Deconvolution", "Crop", "hard_sigmoid", "LayerNorm", "GroupNorm"))


def with_facts(graph: Graph) -> Graph:
    """The graph with what its ops' kinds tell."""
    return replace(graph, ops=tuple(replace(
        op, own_buffers=_own_buffers(op), needs_reader=op.kind in _NEED_READERS,
        adds_into_first=op.kind == "_grad_add" and len(op.inputs) == 2,
        unwritten_outputs=(1,) if op.kind == "Pooling" and len(op.outputs) > 1 else ())
        for op in graph.ops), _cache={})


def _own_buffers(op: Op) -> Tuple[int, ...]:
    if op.kind in _RUN_BY_THEMSELVES:
        return tuple(range(len(op.inputs) + len(op.outputs)))
    weight = _REARRANGED_WEIGHT.get(op.kind)
    return (weight,) if weight and len(op.inputs) > weight else ()
