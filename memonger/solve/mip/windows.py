"""Schedules as points of the relaxation, and the op to constrain next."""
from __future__ import annotations

from typing import Dict, List, Mapping, Sequence, Set, Tuple

import numpy as np

from ...graph.in_use import graph_in_use
from ...graph.schedule import Schedule
from .problem import Reduced
from .program import Program


def base_positions(schedule: Schedule) -> List[int]:
    """For each op the step of its first run."""
    first: Dict[int, int] = {}
    for index, step in enumerate(schedule.steps):
        first.setdefault(step.op, index)
    return [first.get(op, -1) for op in range(max(first, default=-1) + 1)]


def lifetimes(reduced: Reduced, schedule: Schedule) -> Dict[int, List[Tuple[int, int]]]:
    """For each group the steps (made, last read) of each of its values."""
    used = graph_in_use(reduced.graph, schedule)
    outputs = set(reduced.graph.outputs)
    spans: Dict[int, List[Tuple[int, int]]] = {}
    last_read: Dict[Tuple[int, int], int] = {}
    for index, step in enumerate(schedule.steps):
        op = used.ops[step.op]
        for position, source in enumerate(step.sources):
            if source >= 0 and position not in op.ignored_inputs:
                last_read[source, op.inputs[position]] = index
    seen: Set[int] = set()
    for index, step in enumerate(schedule.steps):
        for tensor in used.ops[step.op].outputs:
            group = int(reduced.group_of[tensor])
            if group < 0:
                continue
            end = last_read.get((index, tensor), index)
            if tensor in outputs and tensor not in seen:
                end = len(schedule.steps)
            seen.add(tensor)
            spans.setdefault(group, []).append((index, end))
    return spans


def point_of(program: Program, reduced: Reduced, schedule: Schedule) -> np.ndarray:
    """The 0/1 point of the program that a schedule is: (columns,) float64.

    It is feasible when the schedule's live bytes fit the budget, and its cost is at most the
    schedule's extra time: that is why the program's optimum is a lower bound.
    """
    values = np.zeros(program.num_columns)
    first, lives = base_positions(schedule), lifetimes(reduced, schedule)
    values[program.lengths.slice] = program.lengths.values(schedule, first)
    taken = taken_groups(reduced, first, lives)
    # An op that a variant leaves out has no step of its own; it counts at that of the op before.
    left_out = [step < 0 for step in first]
    for op in range(len(first)):
        if first[op] < 0:
            first[op] = first[op - 1] if op else 0
    ends = [first[k] for k in program.constrained]
    after = [left_out[k] for k in program.constrained]
    for number in schedule.variants:
        values[program.variant_column[number]] = 1.0
    for group, spans in lives.items():
        for made, last in spans:
            begin = int(np.searchsorted(ends, made, side="left"))
            for window in range(begin, len(ends)):
                if ends[window] + after[window] > last:
                    break
                low, high = program.live.first[group], program.live.last[group]
                if low <= window <= high:
                    values[program.live.offset[group] + window - low] = 1.0
    for number, (group, window) in enumerate(zip(program.taken.owner, program.taken.window)):
        if int(group) in taken[int(program.constrained[window])]:
            values[program.taken.base + number] = 1.0
    in_use = {-1, *schedule.variants}
    number_of = {op: number for op, variants in enumerate(reduced.variant_of)
                 for number, variant in enumerate(variants) if variant in in_use}
    repeat_of = {repeat: index for index, repeat in enumerate(program.repeats)}
    seen: Set[int] = set()
    for index, step in enumerate(schedule.steps):
        if step.op in seen:
            repeat = repeat_of[step.op, number_of[step.op]]
            window = int(np.searchsorted(ends, index, side="left"))
            if program.rerun.first[repeat] <= window <= program.rerun.last[repeat]:
                values[program.rerun.offset[repeat] + window - program.rerun.first[repeat]] = 1.0
        seen.add(step.op)
    for number, (repeat, span) in enumerate(zip(program.again.owner, program.again.window)):
        begin, end = program.spans[span]
        columns = program.rerun.column(np.full(end - begin + 1, repeat), np.arange(begin, end + 1))
        values[program.again.base + number] = values[columns[columns >= 0]].max(initial=0.0)
    return values


def taken_groups(reduced: Reduced, first: Sequence[int],
                 lives: Mapping[int, Sequence[Tuple[int, int]]]) -> Dict[int, Dict[int, int]]:
    """By op of ``reduced.inplace_reuses``: the groups it can take, as their last value ends there.

    No more than the op has outputs for, those that save most; with the bytes. ``first`` and
    ``lives`` are :func:`base_positions` and :func:`lifetimes` of a schedule.
    """
    taken: Dict[int, Dict[int, int]] = {}
    for reuse in reduced.inplace_reuses:
        step = first[reuse.op] if reuse.op < len(first) else -1
        gone = [(group, saved) for group, saved in reuse.sources
                if _ends_at(step, lives.get(group, ()))]
        gone.sort(key=lambda pair: (-pair[1], pair[0]))
        taken[reuse.op] = dict(gone[:len(reuse.places)])
    return taken


def _ends_at(step: int, spans: Sequence[Tuple[int, int]]) -> bool:
    """Whether a value is last read at the step, and none lives on."""
    return any(last == step for _, last in spans) \
        and not any(made <= step < last for made, last in spans)


def worst_op(program: Program, reduced: Reduced, schedule: Schedule, budget_bytes: float) -> int:
    """The base op, not yet constrained, at or before which a schedule exceeds the budget most.

    -1 when no op that is not constrained exceeds it.
    """
    places = np.array(place_of_ops(schedule), dtype=np.int64)
    excess = np.maximum(_alive(reduced, schedule, places)
                        - budget_bytes - 1e-6 * max(budget_bytes, 1.0), 0.0)
    excess[np.isin(places, program.constrained)] = 0.0
    worst = int(np.argmax(excess)) if len(excess) else 0
    return int(places[worst]) if len(excess) and excess[worst] > 0 else -1


def peak_ops(reduced: Reduced, schedule: Schedule, count: int) -> List[int]:
    """The ``count`` base ops at which a schedule takes most bytes, none side by side.

    Of neighbours, which a program would constrain alike, only the worst.
    """
    places = np.array(place_of_ops(schedule), dtype=np.int64)
    alive = _alive(reduced, schedule, places)
    at_op = {op: alive[step] for op, step in enumerate(base_positions(schedule)) if step >= 0}
    apart = max(1, reduced.num_ops // (4 * count))
    chosen: List[int] = []
    for op in sorted(at_op, key=lambda op: (-at_op[op], op)):
        if all(abs(op - other) >= apart for other in chosen):
            chosen.append(op)
        if len(chosen) == count:
            break
    return sorted(chosen)


def _alive(reduced: Reduced, schedule: Schedule, places: np.ndarray) -> np.ndarray:
    """(steps,) float64: live bytes."""
    first, lives = base_positions(schedule), lifetimes(reduced, schedule)
    taken = taken_groups(reduced, first, lives)
    change = np.zeros(len(places) + 2)
    for group, spans in lives.items():
        for made, last in spans:
            change[made] += reduced.size_bytes[group]
            change[last + 1] -= reduced.size_bytes[group]
    alive = np.cumsum(change)[:len(places)] + reduced.profile_bytes[places]
    for reuse in reduced.inplace_reuses:
        if reuse.op < len(first) and first[reuse.op] >= 0:
            alive[first[reuse.op]] += sum(reuse.places) - sum(taken[reuse.op].values())
    return alive


def place_of_ops(schedule: Schedule) -> Tuple[int, ...]:
    """For each step the base op at or before which it runs."""
    first: Dict[int, int] = {}
    for number, step in enumerate(schedule.steps):
        first.setdefault(step.op, number)
    base = {number: op for op, number in first.items()}
    places: List[int] = [0] * len(schedule.steps)
    following = max(first) if first else 0
    for number in reversed(range(len(schedule.steps))):
        following = base.get(number, following)
        places[number] = following
    return tuple(places)
