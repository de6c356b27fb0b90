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
        for op, how in graph.variants[index].implementations:
            if how.runs:
                ops[op] = replace(ops[op], inputs=how.inputs, outputs=how.outputs,
                                  ignored_inputs=how.ignored_inputs, inplace=how.inplace,
                                  kept_outputs=(), time_s=how.time_s,
                                  workspace_bytes=how.workspace_bytes, placeholder=False,
                                  own_buffers=_same_values(ops[op], how.inputs + how.outputs),
                                  unwritten_outputs=())
            else:
                ops[op] = replace(ops[op], inputs=(), outputs=(), ignored_inputs=(), inplace=(),
                                  time_s=0.0, workspace_bytes=0, placeholder=True,
                                  own_buffers=(), unwritten_outputs=())
    return tuple(ops)


def _same_values(op: Op, values: Tuple[int, ...]) -> Tuple[int, ...]:
    """Positions in ``values`` of what has buffers of its own at ``op``."""
    if not op.own_buffers:
        return ()
    before = op.inputs + op.outputs
    apart = {before[position] for position in op.own_buffers}
    return tuple(position for position, tensor in enumerate(values) if tensor in apart)


def graph_in_use(graph: Graph, schedule: Schedule) -> Graph:
    """The graph with the schedule's variants in the place of the ops that they replace."""
    if not schedule.variants:
        return graph
    ops = effective_ops(graph, schedule.variants)
    producer = {tensor: index for index, op in enumerate(ops) for tensor in op.outputs}
    tensors = tuple(replace(tensor, producer=producer.get(i, tensor.producer))
                    for i, tensor in enumerate(graph.tensors))
    return replace(graph, tensors=tensors, ops=ops, variants=(), _cache={})
