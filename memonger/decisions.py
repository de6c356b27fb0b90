"""Back from a schedule to the decisions that make it.

:func:`memonger.schedule.expand` turns decisions into steps; this is its inverse, for plan files
and reports. It exists for every schedule that ``expand`` can make; whether it was one of those
shows by expanding the result.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Dict, List

from .blocks import effective_ops
from .graph import Graph
from .schedule import Consumer, Schedule


def graph_in_use(graph: Graph, schedule: Schedule) -> Graph:
    """The graph with the schedule's variants in the place of the ops that they replace."""
    if not schedule.variants:
        return graph
    ops = effective_ops(graph, schedule.variants)
    producer = {tensor: index for index, op in enumerate(ops) for tensor in op.outputs}
    tensors = tuple(replace(tensor, producer=producer.get(i, tensor.producer))
                    for i, tensor in enumerate(graph.tensors))
    return replace(graph, tensors=tensors, ops=ops, variants=(), _cache={})


def decisions_of(graph: Graph, schedule: Schedule) -> Dict[int, Dict[Consumer, int]]:
    """The recomputed ops with the consumers that do not read clone 1: a ``Recompute``.

    The k-th repeated run of an op is its clone k. O(size of the schedule).
    """
    in_use = graph_in_use(graph, schedule)
    runs: Dict[int, int] = {}
    number: List[int] = []
    for step in schedule.steps:
        number.append(runs.get(step.op, 0))
        runs[step.op] = number[-1] + 1
    recompute: Dict[int, Dict[Consumer, int]] = {op: {} for op, count in sorted(runs.items())
                                                 if count > 1}
    for index, step in enumerate(schedule.steps):
        op = in_use.ops[step.op]
        if not op.is_backward and number[index] == 0:
            continue
        for position, source in enumerate(step.sources):
            if source < 0 or position in op.ignored_inputs:
                continue
            made_by = schedule.steps[source].op
            output = in_use.ops[made_by].outputs.index(op.inputs[position])
            if made_by in recompute and output not in in_use.ops[made_by].kept_outputs \
                    and number[source] != 1:
                recompute[made_by][step.op, number[index]] = number[source]
    return recompute
