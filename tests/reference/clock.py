"""When steps of several streams run, and which must have ended before others begin, the slow way.

The step of training as a graph of events: an arrow leads from each step to those that wait for it.
It shares no code with :mod:`memonger.graph.clock` and the simulator.
"""
from __future__ import annotations

from typing import Dict, Iterator, List, Set, Tuple

from memonger.graph.schedule import Schedule
from memonger.graph.types import Graph, Op
from memonger.plans.validate import chosen_ops


def waits_of(graph: Graph, schedule: Schedule) -> List[Set[int]]:
    """For each step the steps that must have ended before it starts."""
    running = _running(graph, schedule)
    waits: List[Set[int]] = []
    for index, op in enumerate(running):
        own = {source for position, source in enumerate(schedule.steps[index].sources)
               if source >= 0 and position not in op.ignored_inputs}
        for stream in {op.stream, "compute"} if op.stream != "compute" else {"compute"}:
            own |= set([i for i in range(index) if running[i].stream == stream][-1:])
        waits.append(own)
    return waits


def ends_of(graph: Graph, schedule: Schedule) -> List[float]:
    """When each step ends: the longest path to it."""
    running, ends = _running(graph, schedule), []  # type: Tuple[List[Op], List[float]]
    for index, before in enumerate(waits_of(graph, schedule)):
        ends.append(max([0.0, *(ends[i] for i in before)]) + running[index].time_s)
    return ends


def time_s(graph: Graph, schedule: Schedule) -> float:
    """The end of the last stream."""
    return max(ends_of(graph, schedule), default=0.0)


def races(graph: Graph, schedule: Schedule) -> Iterator[Tuple[str, str, str]]:
    """Tensor, step that touches it and step that may get its memory too early.

    A value's memory is free behind the last step that reads it. Whatever is made after that may lie
    there, so it must wait for all steps that touch the value.
    """
    running = _running(graph, schedule)
    behind: List[Set[int]] = []
    for before in waits_of(graph, schedule):
        behind.append(set().union(before, *(behind[i] for i in before)))
    touched: Dict[Tuple[int, int], List[int]] = {}
    made: Set[int] = set()
    for index, op in enumerate(running):
        for position, source in enumerate(schedule.steps[index].sources):
            if source >= 0 and position not in op.ignored_inputs:
                # What hands a value on makes nothing else.
                handed = running[source].hands_on == op.inputs[position]
                tensor = running[source].outputs[0] if handed else op.inputs[position]
                touched[source, tensor].append(index)
        for tensor in op.outputs:
            lasts = tensor in graph.outputs and tensor not in made
            made.add(tensor)
            touched[index, tensor] = [index, *[len(running)] * lasts]
    for (_, tensor), steps in touched.items():
        if not graph.tensors[tensor].pooled:
            continue
        for later in range(max(steps) + 1, len(running)):
            if any(graph.tensors[t].pooled for t in running[later].outputs):
                for step in steps:
                    if step not in behind[later]:
                        yield graph.tensors[tensor].name, running[step].name, running[later].name


def _running(graph: Graph, schedule: Schedule) -> List[Op]:
    ops = chosen_ops(graph, schedule.variants)
    running = [ops[step.op] for step in schedule.steps]
    return [op for op in running if op is not None]
