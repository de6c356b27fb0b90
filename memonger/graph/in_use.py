"""The graph with operator variants in the place of the ops that they replace."""
from __future__ import annotations

from dataclasses import replace
from typing import List, Sequence, Tuple

from .schedule import Schedule
from .types import Graph, Op


def effective_ops(graph: Graph, variants: Sequence[int]) -> Tuple[Op, ...]:
    """The ops of the graph with these variants in use.

    An op that does not run in a variant becomes a placeholder: it has neither inputs nor outputs.
    """
    ops: List[Op] = list(graph.ops)
    for index in variants:
        for op, number in graph.variants[index].choices:
            ops[op] = ops[op].running_as(number)
    return tuple(ops)


def graph_in_use(graph: Graph, schedule: Schedule) -> Graph:
    """The graph with the schedule's variants in the place of the ops that they replace."""
    if not schedule.variants:
        return graph
    ops = effective_ops(graph, schedule.variants)
    tensors = list(graph.tensors)
    for index, op in enumerate(ops):
        for tensor in op.outputs:
            if tensors[tensor].producer != index:
                tensors[tensor] = replace(tensors[tensor], producer=index)
    return replace(graph, tensors=tuple(tensors), ops=ops, variants=())
