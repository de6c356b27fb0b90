"""What a plan chooses: which values stay, which ops run again, which variants there are."""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Dict, List, Sequence, Set, Tuple

import numpy as np

from .columns import Family, Ranges, Rows
from .frame import Frame, Placed, ends_of_forward
from .targets import ALWAYS, Targets


@dataclass
class Lives(Ranges):
    """``live[t, j]``: a value is in memory at the constrained op that ends a window.

    There is one for each window from a value's birth to the last op that can need it.
    """

    @classmethod
    def of(cls, frame: Frame, base: int) -> "Lives":
        reduced = frame.reduced
        last = np.searchsorted(frame.ends_at, reduced.last_need, side="right") - 1
        return cls.make(frame, base, frame.window_of[reduced.birth], last)

    def add_rows(self, rows: Rows, target: Targets, forget: Sequence[int]) -> None:
        """Lives that are no decision: operands of constrained ops, first lives in forward.

        ``forget``: ops whose values must not stay from forward to backward.
        """
        reduced, forgotten = self.frame.reduced, set(forget)
        passes = ends_of_forward(reduced.graph)
        for group in range(len(self.first)):
            for (window, op), numbers in self._needed(group).items():
                column = self.at(group, window)
                if column < 0:
                    continue
                wanted = target.of_implementations(op, sorted(set(numbers)))
                if wanted == ALWAYS:
                    rows.least[column] = 1.0
                else:
                    rows.add(target.open(rows, np.array([wanted])), np.array([column]), 1.0)
            asked = [op for op, _ in reduced.makers[group] if op in forgotten]
            behind = [end for end in passes if asked and end >= asked[0]]
            last = self.at(group, self.frame.spot_at[behind[0]]) if behind else -1
            if last >= 0 and rows.least[last] == 0.0:
                rows.most[last] = 0.0

    def _needed(self, group: int) -> Dict[Tuple[int, int], List[int]]:
        """The implementations with which an op needs a value at the end of a window."""
        frame, reduced = self.frame, self.frame.reduced
        must: Dict[Tuple[int, int], List[int]] = {}
        for op, number in reduced.readers[group] + reduced.makers[group]:
            if op in frame.spot_at:
                must.setdefault((frame.spot_at[op], op), []).append(number)
        for op, number in reduced.readers[group]:
            if op < reduced.first_backward:
                begin = int(frame.window_of[reduced.first_life(group, op)])
                for window in range(begin, int(frame.window_of[op])):
                    must.setdefault((window, op), []).append(number)
        return must

    def fill(self, values: np.ndarray, placed: Placed) -> None:
        for group, spans in placed.lives.items():
            for made, last in spans:
                for window in placed.ends_in(made, last):
                    column = self.at(group, window)
                    if column >= 0:
                        values[column] = 1.0


@dataclass
class Variants(Family):
    """``variant[m]``: ops run as variant ``m`` has them, one that may be chosen."""

    #: (variants of the graph,) int64: the column of each, -1 where it may not be chosen.
    column_of: np.ndarray

    @classmethod
    def of(cls, frame: Frame, base: int) -> "Variants":
        reduced = frame.reduced
        column_of = np.full(len(reduced.graph.variants), -1, dtype=np.int64)
        column_of[list(reduced.variants)] = base + np.arange(len(reduced.variants))
        return cls(frame, base, base + len(reduced.variants), column_of)

    def add_rows(self, rows: Rows) -> None:
        """What variants cost; those that change the same op exclude each other."""
        reduced = self.frame.reduced
        for number in reduced.variants if self.frame.sums_times else ():
            for op, implementation in reduced.graph.implementations_of(number):
                rows.cost[self.column_of[number]] += \
                    implementation.time_s - reduced.graph.ops[op].time_s
        sets = dict.fromkeys(tuple(sorted(set(of_op[1:]))) for of_op in reduced.variant_of)
        for chosen in sets:
            if len(chosen) > 1:
                row = rows.open([-np.inf], [1.0])
                rows.add(np.repeat(row, len(chosen)), self.column_of[list(chosen)], 1.0)

    def fill(self, values: np.ndarray, placed: Placed) -> None:
        values[self.column_of[list(placed.schedule.variants)]] = 1.0


@dataclass
class Reruns(Ranges):
    """``rerun[r, j]``: an op happens again inside a window, as one implementation.

    There is one for each window of backward in which what a repeat makes may be needed.
    """

    #: What may run again: op and number of its implementation.
    repeats: List[Tuple[int, int]]

    @classmethod
    def of(cls, frame: Frame, base: int) -> "Reruns":
        reduced, window_of = frame.reduced, frame.window_of
        repeats = [(op, number) for op in range(reduced.num_ops) if reduced.again[op]
                   for number, implementation in enumerate(reduced.implementations[op])
                   if implementation.runs]
        number_of = {repeat: i for i, repeat in enumerate(repeats)}
        wanted = np.full(len(repeats), -1, dtype=np.int64)
        for group in np.flatnonzero(~reduced.frozen_group):
            for maker in reduced.makers[group]:
                if maker in number_of:
                    repeat = number_of[maker]
                    wanted[repeat] = max(wanted[repeat], reduced.last_need[group])
        first = window_of[np.array([op for op, _ in repeats], dtype=np.int64)] + 1
        if reduced.first_backward < reduced.num_ops:
            first = np.maximum(first, window_of[reduced.first_backward])
        last = np.where(wanted >= 0, window_of[np.maximum(wanted, 0)], -1) \
            if len(repeats) else wanted
        return cls.make(frame, base, first, last, repeats)

    @cached_property
    def number_of(self) -> Dict[Tuple[int, int], int]:
        """The number of each repeat."""
        return {repeat: number for number, repeat in enumerate(self.repeats)}

    def makers(self, group: int) -> List[int]:
        """The repeats that make a value again."""
        reduced = self.frame.reduced
        return [] if reduced.frozen_group[group] else [
            self.number_of[maker] for maker in reduced.makers[group] if maker in self.number_of]

    def add_rows(self, rows: Rows, variant: Variants, max_reruns: int) -> None:
        """What reruns cost; an op runs again as it runs first, and at most so often (0: any)."""
        reduced = self.frame.reduced
        if self.frame.sums_times:
            times = np.array([reduced.implementations[op][number].time_s
                              for op, number in self.repeats], dtype=float)
            rows.cost[self.columns] = times[self.pairs()[0]]
        for repeat, (op, number) in enumerate(self.repeats):
            variants = reduced.variant_of[op]
            for column in self.columns_of(repeat) if len(variants) > 1 else ():
                row = rows.open([-np.inf], [1.0 if number == 0 else 0.0])
                rows.add(row, np.array([column]), 1.0)
                others = variants[1:] if number == 0 else [variants[number]]
                rows.add(np.repeat(row, len(others)), variant.column_of[others],
                         1.0 if number == 0 else -1.0)
            columns = self.columns_of(repeat)
            if 0 < max_reruns < len(columns):
                row = rows.open([-np.inf], [float(max_reruns)])
                rows.add(np.repeat(row, len(columns)), columns, 1.0)

    def fill(self, values: np.ndarray, placed: Placed) -> None:
        seen: Set[int] = set()
        for index, step in enumerate(placed.schedule.steps):
            if step.op in seen:
                column = self.at(self.number_of[step.op, placed.number_of[step.op]],
                                 placed.window(index))
                if column >= 0:
                    values[column] = 1.0
            seen.add(step.op)
