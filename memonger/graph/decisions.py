"""Recovers from a schedule the decisions that make it.

:func:`memonger.graph.schedule.expand` turns decisions into steps; this is its inverse, for plan
files, reports, and for the same network at another batch. Every schedule that ``expand`` can make
has decisions; to know whether a schedule is one of those, expand them and compare.
"""
from __future__ import annotations

from typing import Dict, List, Set, Tuple

from .in_use import graph_in_use
from .schedule import HANDED_ON, Consumer, Schedule, expand_in_part
from .types import Graph


def decisions_of(graph: Graph, schedule: Schedule) -> Dict[int, Dict[Consumer, int]]:
    """The recomputed ops with the consumers that do not read clone 1: a ``Recompute``.

    The k-th repeated run of an op is its clone k. O(size of the schedule).
    """
    in_use = graph_in_use(graph, schedule)
    recompute: Dict[int, Dict[Consumer, int]] = {op: {} for op in (
        *schedule.recomputed(), *read_as_handed_on(in_use, schedule))}
    runs: Dict[int, int] = {}
    number: List[int] = []
    for step in schedule.steps:
        op = in_use.ops[step.op]
        number.append(runs.get(step.op, 0))
        runs[step.op] = number[-1] + 1
        if not op.is_backward and number[-1] == 0:
            continue
        # The state that an op continues is that of the last run.
        if op.uses_state and op.forward_op in recompute and runs[op.forward_op] != 2:
            recompute[op.forward_op][step.op, number[-1]] = runs[op.forward_op] - 1
        for position, source in enumerate(step.sources):
            if source < 0 or position in op.ignored_inputs:
                continue
            made_by = schedule.steps[source].op
            if in_use.ops[made_by].hands_on == op.inputs[position]:
                recompute[in_use.tensors[op.inputs[position]].producer][
                    step.op, number[-1]] = HANDED_ON
                continue
            output = in_use.ops[made_by].outputs.index(op.inputs[position])
            if made_by in recompute and output not in in_use.ops[made_by].kept_outputs \
                    and number[source] != 1:
                recompute[made_by][step.op, number[-1]] = number[source]
    return recompute


def read_as_handed_on(graph: Graph, schedule: Schedule) -> Set[int]:
    """The ops whose values some step reads as another op hands them on.

    ``graph``: with the schedule's variants in use.
    """
    if not graph.handed_on:
        return set()
    return {graph.tensors[tensor].producer for step in schedule.steps
            for tensor, source in zip(graph.ops[step.op].inputs, step.sources)
            if source >= 0 and graph.ops[schedule.steps[source].op].hands_on == tensor}


def carried_over(graph: Graph, schedule: Schedule, other: Graph) -> Schedule:
    """The schedule in another graph of the same network, such as that of another batch.

    Ops and variants are found by their names; decisions on those that ``other`` does not have
    are left out. O(size of both graphs).
    """
    ids: Dict[str, int] = {op.name: index for index, op in enumerate(other.ops)}
    known = {_key(other, number): number for number in range(len(other.variants))}
    variants = {_key(graph, number) for number in schedule.variants}
    chosen = tuple(sorted(number for key, number in known.items() if key in variants))

    def moved(op: int) -> int:
        return ids.get(graph.ops[op].name, -1)

    recompute = {moved(op): {(moved(reader), run): clone
                             for (reader, run), clone in served.items() if moved(reader) >= 0}
                 for op, served in decisions_of(graph, schedule).items() if moved(op) >= 0}
    steps = expand_in_part(graph_in_use(other, Schedule((), chosen)), recompute).steps
    return Schedule(steps, chosen)


def _key(graph: Graph, number: int) -> Tuple[str, ...]:
    """A variant by names."""
    variant = graph.variants[number]
    return (variant.name, *(graph.ops[op].name for op, _ in variant.choices))
