"""From a point of the relaxation to a schedule that runs.

The base ops run in order; a value that is missing is made again on demand, after its own inputs.
After each op a value stays only if it must (first lives in forward, outputs, values that nothing
makes again), if the current window still reads it, or if the point has it live at the constrained
op that ends the window. The result runs whatever the point is; what it takes is for the storage
model to say. O(steps + windows x values) time.
"""
from __future__ import annotations

from bisect import bisect_left
from typing import Dict, List, Optional, Sequence, Set

import numpy as np

from ...graph.decisions import decisions_of
from ...graph.in_use import graph_in_use
from ...graph.schedule import Schedule, Step, expand_in_part
from ...graph.types import Graph
from .problem import Reduced
from .program import Program


def schedule_of_point(program: Program, reduced: Reduced, values: np.ndarray,
                      threshold: float = 0.5) -> Optional[Schedule]:
    """The schedule that a point, (columns,) float64, suggests.

    Fractions from ``threshold`` on count as live.

    Returns
    -------
    Schedule or None
        None when it needs a value that nothing can make again. It is one of those that
        :func:`memonger.graph.schedule.expand` makes.
    """
    graph = reduced.graph
    variants = tuple(number for number in reduced.variants
                     if values[program.variant.column_of[number]] >= 0.5)
    used = graph_in_use(graph, Schedule((), variants))
    steps = _Decoder(program, reduced, used, values, threshold).run()
    if steps is None:
        return None
    schedule = Schedule(tuple(steps), variants)
    again = expand_in_part(used, decisions_of(graph, schedule))
    return Schedule(again.steps, variants)


class _Decoder:
    """The state of one run: which step made the value in memory of each tensor."""

    def __init__(self, program: Program, reduced: Reduced, graph: Graph, values: np.ndarray,
                 threshold: float):
        self.reduced, self.graph = reduced, graph
        self.ends = [int(k) for k in program.constrained]
        self.version: List[int] = [-1] * len(graph.tensors)
        self.steps: List[Step] = []
        self.touched: Set[int] = set()
        self.last_made: Dict[int, int] = {}
        self.reruns: Set[int] = set()
        groups = reduced.group_of
        self.kept_groups = [set() for _ in self.ends]  # type: List[Set[int]]
        owner, window = program.live.pairs()
        alive = values[program.live.columns] >= threshold
        for group, spot in zip(owner[alive].tolist(), window[alive].tolist()):
            self.kept_groups[spot].add(group)
        taken = values[program.taken.columns] >= threshold
        for group, spot in zip(program.taken.owner[taken].tolist(),
                              program.taken.window[taken].tolist()):
            self.kept_groups[spot].discard(group)
        self.planned = [set() for _ in range(len(self.ends) + 1)]  # type: List[Set[int]]
        owner, window = program.rerun.pairs()
        chosen = values[program.rerun.columns] >= threshold
        for repeat, spot in zip(owner[chosen].tolist(), window[chosen].tolist()):
            self.planned[spot].add(program.rerun.repeats[repeat][0])
        self.reads: List[List[int]] = [[] for _ in graph.tensors]
        for index, op in enumerate(graph.ops):
            ignored = set(op.ignored_inputs)
            for tensor in {t for i, t in enumerate(op.inputs) if i not in ignored}:
                self.reads[tensor].append(index)
        for tensor, by in graph.handed_on.items():  # what runs again may read either
            held = graph.ops[by].outputs[0]
            self.reads[held] = sorted({*self.reads[held], *self.reads[tensor]})
        made_in = {t: op for op, group in enumerate(graph.ops) for t in group.outputs}
        outputs = set(graph.outputs)
        #: Last base op until which the first value of a tensor stays in any case.
        self.stays: List[int] = []
        for tensor in range(len(graph.tensors)):
            producer = made_in.get(tensor, -1)
            last = -1
            if tensor in outputs or groups[tensor] < 0 or producer < 0:
                last = len(graph.ops)
            elif not reduced.again[producer] \
                    or graph.ops[producer].outputs.index(tensor) in \
                    graph.ops[producer].kept_outputs:
                last = self.reads[tensor][-1] if self.reads[tensor] else producer
            self.stays.append(
                max([last] + [r for r in self.reads[tensor] if not graph.ops[r].is_backward]))

    def run(self) -> Optional[List[Step]]:
        for index, op in enumerate(self.graph.ops):
            if not op.runs or op.hands_on >= 0 and op.outputs[0] in self.last_made:
                continue
            window = bisect_left(self.ends, index)
            if not self._make(index, True):
                return None
            done = window < len(self.ends) and self.ends[window] == index
            self._release(index, window, done)
        return self.steps

    def _make(self, target: int, first: bool) -> bool:
        """Run an op after whatever it lacks; an explicit stack, chains are long."""
        stack = [target]
        entered: Set[int] = set()
        while stack:
            index = stack[-1]
            op = self.graph.ops[index]
            ignored = set(op.ignored_inputs)
            missing = None
            for position, tensor in enumerate(op.inputs):
                producer = self.graph.tensors[tensor].producer
                if position not in ignored and producer >= 0 and self._version(tensor) < 0:
                    missing = self._runs_for(tensor)
                    break
            if missing is not None:
                if missing < 0 or missing in entered:
                    return False
                entered.add(missing)
                stack.append(missing)
                continue
            stack.pop()
            entered.discard(index)
            again = not (first and index == target) and not op.is_backward
            self._step(index, again)
        return True

    def _runs_for(self, tensor: int) -> int:
        """The op to run for a tensor that is not in memory; -1: none may.

        What hands its value on may run before its place, as soon as what it reads is there.
        """
        by = self.graph.handed_on.get(tensor, -1)
        if by >= 0 and self.graph.ops[by].outputs[0] not in self.last_made and all(
                self.version[t] >= 0 and self.graph.ops[self.graph.tensors[t].producer].is_backward
                for t in self.graph.ops[by].inputs):
            return by
        producer = self.graph.tensors[tensor].producer
        return producer if self.reduced.again[producer] else -1

    def _version(self, tensor: int) -> int:
        """The step that made the value in memory of a tensor, or hands it on; -1: none."""
        by = self.graph.handed_on.get(tensor, -1)
        return self.version[tensor] if by < 0 or self.version[tensor] >= 0 else \
            self.version[self.graph.ops[by].outputs[0]]

    def _step(self, index: int, again: bool) -> None:
        op = self.graph.ops[index]
        sources = []
        for tensor in op.inputs:
            source = self._version(tensor)
            if source < 0 and self.graph.tensors[tensor].producer >= 0:
                source = self.last_made.get(tensor, -1)
            sources.append(source)
            self.touched.add(tensor)
        number = len(self.steps)
        self.steps.append(Step(index, tuple(sources)))
        for position, tensor in enumerate(op.outputs):
            if again and position in op.kept_outputs:
                continue
            self.version[tensor] = number
            self.last_made[tensor] = number
            self.touched.add(tensor)
        if again:
            self.reruns.add(index)

    def _release(self, index: int, window: int, done: bool) -> None:
        """Drop what neither this window nor its end needs."""
        kept = self.kept_groups[window] if window < len(self.ends) else set()
        end = self.ends[window] if window < len(self.ends) else len(self.graph.ops)
        pending = self.planned[window] - self.reruns
        candidates: Sequence[int] = sorted(self.touched)
        if done:
            candidates = [t for t, v in enumerate(self.version) if v >= 0]
            pending = set()
            self.reruns.clear()
        left = set()
        for tensor in candidates:
            if self.version[tensor] < 0 or self.stays[tensor] > index:
                continue
            if int(self.reduced.group_of[tensor]) in kept:
                continue
            later = self.reads[tensor]
            spot = bisect_left(later, index + 1)
            if spot < len(later) and later[spot] <= end and not done:
                continue
            if any(reader in pending for reader in later):
                left.add(tensor)
                continue
            self.version[tensor] = -1
        self.touched = left

