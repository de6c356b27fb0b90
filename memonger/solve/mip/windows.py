"""Schedules as points of the relaxation, and the op to constrain next."""
from __future__ import annotations

from typing import List

import numpy as np

from ...graph.schedule import Schedule
from .frame import Placed, base_positions, lifetimes, place_of_ops, taken_groups
from .problem import Reduced
from .program import Program
from .workspace import above_least_bytes


def point_of(program: Program, schedule: Schedule) -> np.ndarray:
    """The 0/1 point of the program that a schedule is: (columns,) float64.

    It is feasible when the schedule's live bytes fit the budget, and its cost is at most the
    schedule's extra time: that is why the program's optimum is a lower bound.
    """
    values = np.zeros(program.num_columns)
    placed = Placed(program.frame, schedule)
    for family in (program.live, program.rerun, program.variant, program.taken, program.again,
                   program.length, program.workspace):
        family.fill(values, placed)
    return values


def worst_op(program: Program, reduced: Reduced, schedule: Schedule, budget_bytes: float) -> int:
    """The base op, not yet constrained, at or before which a schedule exceeds the budget most.

    -1 when no op that is not constrained exceeds it.
    """
    places = np.array(place_of_ops(schedule), dtype=np.int64)
    budget_bytes -= above_least_bytes(reduced, schedule)
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
