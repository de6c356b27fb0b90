"""Convolutions whose gradient is worth computing in two steps, and placeholders for the second.

The variant ``split_convolution`` has one op more in backward than the network. Planners see a
graph with a placeholder for that op right before the convolution's gradient. A placeholder takes
neither time nor memory, so the graph is what MXNet runs as long as nobody chooses the variant.
"""
from __future__ import annotations

from dataclasses import replace
from typing import AbstractSet, Dict, List

from ...graph.types import Graph, Op
from ...graph.working_set import working_bytes


def worth_splitting(graph: Graph) -> Dict[str, int]:
    """Names and gradient ops of the convolutions whose two gradients may be computed separately.

    Those whose data and weight need one, and whose own gradient works on at least as many bytes as
    any other op does: it decides about the least memory that the step can take. Elsewhere other
    ops would still have as much in memory at once, and offering more would only cost search time.
    """
    can = {index for index, op in enumerate(graph.ops) if _can_split(graph, op)}
    others = max([working_bytes(graph, op) for index, op in enumerate(graph.ops)
                  if index not in can] or [0])
    return {graph.ops[graph.ops[index].forward_op].name: index for index in sorted(can)
            if working_bytes(graph, graph.ops[index]) >= others}


def _can_split(graph: Graph, op: Op) -> bool:
    """Whether the op is a gradient of a convolution of which both parts are wanted."""
    return op.kind == "_backward_Convolution" and op.forward_op >= 0 and all(
        graph.consumers[tensor] or tensor in graph.output_set for tensor in op.outputs[:2])


def with_placeholders(graph: Graph, gradients: AbstractSet[int]) -> Graph:
    """The graph, which has no variants yet, with a placeholder before each of these gradients."""
    if not gradients:
        return graph
    ops: List[Op] = []
    new_index: Dict[int, int] = {-1: -1}
    for index, op in enumerate(graph.ops):
        if index in gradients:
            ops.append(Op.of(op.name + "_weight", op.kind, (), (), is_backward=True,
                             not_recomputable_because=op.not_recomputable_because,
                             device=op.device, runs=False))
        new_index[index] = len(ops)
        ops.append(op)
    ops = [replace(op, forward_op=new_index[op.forward_op],
                   control_deps=tuple(new_index[dep] for dep in op.control_deps)) for op in ops]
    tensors = tuple(replace(t, producer=new_index[t.producer]) for t in graph.tensors)
    return replace(graph, ops=tuple(ops), tensors=tensors)
