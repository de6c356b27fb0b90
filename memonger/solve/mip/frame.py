"""How a program cuts a step into windows, and how a schedule lies in them."""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Dict, List, Mapping, Sequence, Set, Tuple

import numpy as np

from ...graph.in_use import graph_in_use
from ...graph.schedule import Schedule
from ...graph.types import Graph
from .problem import Reduced


@dataclass(frozen=True)
class Frame:
    """What all families of columns and rows of a program have in common."""

    reduced: Reduced
    #: (windows,) int64: the constrained ops, increasing.
    ends_at: np.ndarray
    #: (ops,) int64: the window of each op's first run.
    window_of: np.ndarray
    #: For the live bytes; ``inf``: it is what is minimised.
    budget_bytes: float
    #: Bytes of one unit of the rows that hold the budget.
    unit_bytes: float

    @classmethod
    def of(cls, reduced: Reduced, constrained: Sequence[int], budget_bytes: float) -> "Frame":
        """Windows that end at these ops, and at the last one of each forward pass."""
        ends = {int(k) for k in constrained}
        ends.update(ends_of_forward(reduced.graph))
        ends_at = np.array(sorted(ends), dtype=np.int64)
        unit = max(float(reduced.size_bytes.max(initial=0.0)), 1.0) / 64
        if np.isfinite(budget_bytes):
            unit = max(budget_bytes / 1024, 1e-9)
        window_of = np.asarray(np.searchsorted(ends_at, np.arange(reduced.num_ops)))
        return cls(reduced, ends_at, window_of, budget_bytes, unit)

    @property
    def minimises_peak(self) -> bool:
        """Whether bytes are minimised, not time."""
        return not np.isfinite(self.budget_bytes)

    @property
    def sums_times(self) -> bool:
        """Whether the time of all runs is minimised; with several streams that of windows is."""
        return not self.minimises_peak and not self.reduced.graph.has_streams

    @cached_property
    def spot_at(self) -> Dict[int, int]:
        """The window that each constrained op ends."""
        return {int(op): window for window, op in enumerate(self.ends_at)}


def ends_of_forward(graph: Graph) -> List[int]:
    """The last op of each forward pass that a backward pass follows."""
    return [phase.first_op - 1 for phase in graph.phases if phase.is_backward and phase.first_op]


class Placed:
    """A schedule as the families of a program see it."""

    def __init__(self, frame: Frame, schedule: Schedule):
        self.frame, self.schedule = frame, schedule
        first = base_positions(schedule)
        self.lives = lifetimes(frame.reduced, schedule)
        self.taken = taken_groups(frame.reduced, first, self.lives)
        # An op that a variant leaves out has no step of its own; it counts at that of the op
        # before, behind it.
        self._after = [first[op] < 0 for op in frame.ends_at]
        for op in range(len(first)):
            if first[op] < 0:
                first[op] = first[op - 1] if op else 0
        self._ends = [first[op] for op in frame.ends_at]

    def window(self, step: int) -> int:
        """The window in which a step is."""
        return int(np.searchsorted(self._ends, step, side="left"))

    def ends_in(self, made: int, last: int) -> List[int]:
        """The windows that end while a value that these steps make and last read is alive."""
        windows = []
        for window in range(self.window(made), len(self._ends)):
            if self._ends[window] + self._after[window] > last:
                break
            windows.append(window)
        return windows

    @cached_property
    def number_of(self) -> Dict[int, int]:
        """The implementation in use of each op."""
        in_use = {-1, *self.schedule.variants}
        return {op: number for op, variants in enumerate(self.frame.reduced.variant_of)
                for number, variant in enumerate(variants) if variant in in_use}


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
                tensor = used.read_as(op.inputs[position], schedule.steps[source].op)
                last_read[source, tensor] = index
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
