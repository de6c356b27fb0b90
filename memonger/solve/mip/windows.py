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
    taken = taken_groups(reduced, first, lives, program.pools.count == 2)
    # An op that a variant leaves out has no step of its own; it counts at that of the op before.
    left_out = [step < 0 for step in first]
    for op in range(len(first)):
        if first[op] < 0:
            first[op] = first[op - 1] if op else 0
    ends = [first[k] for k in program.constrained]
    after = [left_out[k] for k in program.constrained]
    for number in schedule.variants:
        values[program.variant_column[number]] = 1.0
    border = _last_forward(reduced, first)
    remade: List[Tuple[int, int]] = []
    for group, spans in lives.items():
        for made, last in spans:
            begin = int(np.searchsorted(ends, made, side="left"))
            for window in range(begin, len(ends)):
                if ends[window] + after[window] > last:
                    break
                low, high = program.live.first[group], program.live.last[group]
                if low <= window <= high:
                    values[program.live.offset[group] + window - low] = 1.0
                    if program.pools.count == 2 and made > border:
                        remade.append((group, window))
    groups, windows = np.array(remade, dtype=np.int64).reshape(-1, 2).T
    columns = program.pools.remade.column(groups, windows)
    values[columns[columns >= 0]] = 1.0
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
    counted = [*program.layer_columns]
    if program.pools.forward_column >= 0:
        counted.append(program.pools.forward_column)
    if counted:
        rows = np.repeat(np.arange(program.num_rows), np.diff(program.start))
        used = np.bincount(rows, weights=program.value * values[program.index],
                           minlength=program.num_rows) - program.row_upper
        counts = np.isin(program.index, counted) & (program.value == -1.0)
        for row, column in zip(rows[counts], program.index[counts]):
            whole = column != program.pools.forward_column
            values[column] = max(values[column],
                                 np.ceil(used[row] - 1e-6) if whole else used[row])
    return values


def taken_groups(reduced: Reduced, first: Sequence[int],
                 lives: Mapping[int, Sequence[Tuple[int, int]]],
                 two_pools: bool) -> Dict[int, Dict[int, int]]:
    """By op of ``reduced.inplace_reuses``: the groups it can take, as their last value ends there.

    No more than the op has outputs for, those that save most; with the bytes. ``two_pools``: what
    lies in the pool of forward stays there, whatever happens in the other. ``first`` and
    ``lives`` are :func:`base_positions` and :func:`lifetimes` of a schedule.
    """
    taken: Dict[int, Dict[int, int]] = {}
    border = _last_forward(reduced, first) if two_pools else -1
    for reuse in reduced.inplace_reuses:
        step = first[reuse.op] if reuse.op < len(first) else -1
        gone = [(group, saved) for group, saved in reuse.sources
                if _ends_at(step, [(made, last) for made, last in lives.get(group, ())
                                   if (made <= border) == (step <= border)])]
        gone.sort(key=lambda pair: (-pair[1], pair[0]))
        taken[reuse.op] = dict(gone[:len(reuse.places)])
    return taken


def _ends_at(step: int, spans: Sequence[Tuple[int, int]]) -> bool:
    """Whether a value is last read at the step, and none lives on."""
    return any(last == step for _, last in spans) \
        and not any(made <= step < last for made, last in spans)


def _last_forward(reduced: Reduced, first: Sequence[int]) -> int:
    """The last step whose values lie in the pool of forward, where there are two; else -1."""
    return max(first[:reduced.first_backward], default=-1) if reduced.two_pools else -1


def worst_op(program: Program, reduced: Reduced, schedule: Schedule, values: np.ndarray,
             budget_bytes: float) -> int:
    """The base op, not yet constrained, at or before which a schedule exceeds the budget most.

    With layers, what counts is the bytes of buffers beyond those that the point provides.
    -1 when no op that is not constrained exceeds it.
    """
    places = np.array(place_of_ops(schedule), dtype=np.int64)
    sizes = program.layers
    buffers = values[program.layer_columns].reshape(program.pools.count, -1)
    pool = (places >= reduced.first_backward).astype(int) * (program.pools.count - 1)
    parts = [(0.0, 1.0, np.full(len(places), budget_bytes))] if not len(sizes) else [
        (size, size - following, buffers[pool, layer])
        for layer, (size, following) in enumerate(zip(sizes, np.append(sizes[1:], 0.0)))]
    excess = np.zeros(len(places))
    for least, weight, limit in parts:
        alive = _alive(reduced, schedule, places, least)
        excess += weight * np.maximum(alive - limit - 1e-6 * np.maximum(limit, 1.0), 0.0)
    excess[np.isin(places, program.constrained)] = 0.0
    worst = int(np.argmax(excess)) if len(excess) else 0
    return int(places[worst]) if len(excess) and excess[worst] > 0 else -1


def peak_ops(reduced: Reduced, schedule: Schedule, count: int) -> List[int]:
    """The ``count`` base ops at which a schedule takes most bytes, none side by side.

    Of neighbours, which a program would constrain alike, only the worst.
    """
    places = np.array(place_of_ops(schedule), dtype=np.int64)
    alive = _alive(reduced, schedule, places, 0.0)
    at_op = {op: alive[step] for op, step in enumerate(base_positions(schedule)) if step >= 0}
    apart = max(1, reduced.num_ops // (4 * count))
    chosen: List[int] = []
    for op in sorted(at_op, key=lambda op: (-at_op[op], op)):
        if all(abs(op - other) >= apart for other in chosen):
            chosen.append(op)
        if len(chosen) == count:
            break
    return sorted(chosen)


def _alive(reduced: Reduced, schedule: Schedule, places: np.ndarray, least: float) -> np.ndarray:
    """(steps,): live bytes; with ``least``, how many live values have at least that many bytes.

    The latter in the pool of each step, where there are two.
    """
    steps = len(places)
    first, lives = base_positions(schedule), lifetimes(reduced, schedule)
    border = _last_forward(reduced, first) + 1 if least else 0
    taken = taken_groups(reduced, first, lives, bool(least) and reduced.two_pools)
    change = np.zeros(steps + 2)
    for group, spans in lives.items():
        size = reduced.size_bytes[group]
        if size >= least:
            for made, last in spans:
                change[made] += 1.0 if least else size
                change[min(last + 1, border) if made < border else last + 1] -= \
                    1.0 if least else size
    fixed = reduced.fixed_at_least(least) if least else reduced.profile_bytes
    alive = np.cumsum(change)[:steps] + fixed[places]
    for reuse in reduced.inplace_reuses:
        if reuse.op < len(first) and first[reuse.op] >= 0:
            falsely = [*reuse.places, *(-saved for saved in taken[reuse.op].values())]
            alive[first[reuse.op]] += sum(np.sign(size) if least else size
                                        for size in falsely if abs(size) >= least)
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
