"""Columns and rows over several windows at once: ``again[r, s]``, a repeat happens in a span.

Cutting backward into windows lets a fraction of a rerun in one window serve another fraction of a
rerun in a later one: two halves of an op that reads a value need half a rerun of it. Over a *span*
of windows an op runs again or does not, and what it reads was live before the span or is made
again in it. These rows say so, for each span, as if it were one window, beside those of the
windows.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Sequence, Set, Tuple

import numpy as np

from .choices import Lives, Reruns
from .columns import Rows, Spots
from .frame import Frame, Placed
from .targets import ALWAYS, Targets, by_op


@dataclass
class Spans(Spots):
    """One for each repeat and span in which it may happen."""

    #: First and last window of each.
    spans: Sequence[Tuple[int, int]]
    rerun: Reruns

    @classmethod
    def of(cls, frame: Frame, base: int, rerun: Reruns,
           spans: Sequence[Tuple[int, int]]) -> "Spans":
        return cls.make(frame, base, [
            (repeat, number) for repeat in range(len(rerun.first))
            for number, (begin, end) in enumerate(spans)
            if rerun.first[repeat] <= end and rerun.last[repeat] >= begin], spans, rerun)

    def add_rows(self, rows: Rows, live: Lives, target: Targets) -> None:
        """``reruns in the span >= again``; what is read, or live, was live before or is remade."""
        if not self.spans:
            return
        numbers = rows.open(np.zeros(len(self.columns)), np.full(len(self.columns), np.inf))
        rows.add(numbers, self.columns, -1.0)
        for number, repeat, span in zip(numbers, self.owner, self.window):
            reruns = self.rerun.columns_of(repeat, *self.spans[span])
            rows.add(np.full(len(reruns), number), reruns, 1.0)
        reduced = self.frame.reduced
        columns: List[Dict[int, int]] = [{} for _ in self.spans]  # of each span, by repeat
        for column, repeat, span in zip(*map(np.ndarray.tolist, (
                self.columns, self.owner, self.window))):
            columns[span][repeat] = column
        makers = [self.rerun.makers(group) for group in range(len(reduced.makers))]
        for (begin, end), here in zip(self.spans, columns):
            start = int(self.frame.ends_at[begin - 1]) if begin else -1
            before = (~reduced.scattered_group & (reduced.birth <= start)).nonzero()[0].tolist()
            needs = [(group, wanted) for group in before
                     for wanted in self._targets(group, (begin, end), here, live, target)]
            group_of, target_of = np.array(needs, dtype=np.int64).reshape(-1, 2).T
            numbers = target.open(rows, target_of)
            rows.add(numbers, live.column(group_of, np.full(len(group_of), begin - 1)), 1.0)
            remade, by = np.array([
                (number, here[maker]) for number, (group, _) in zip(numbers, needs)
                for maker in makers[group] if maker in here], dtype=np.int64).reshape(-1, 2).T
            rows.add(remade, by, 1.0)

    def _targets(self, group: int, span: Tuple[int, int], here: Dict[int, int], live: Lives,
                 target: Targets) -> Sequence[int]:
        """What needs a value in a span; ``here``: the columns of the span by repeat."""
        targets: Set[int] = set()
        for op, implementations in by_op(self.frame.reduced.readers[group]).items():
            again: List[int] = [here[repeat] for repeat in (
                self.rerun.number_of.get((op, number), -1) for number in implementations)
                if repeat in here]
            if again:
                targets.add(target.of_columns(again))
            if span[0] <= self.frame.window_of[op] <= span[1]:
                targets.add(target.of_implementations(op, implementations))
        last = live.at(group, span[1])
        if last >= 0:
            targets.add(last)
        # What is at hand in every plan is so for all else.
        return [ALWAYS] if ALWAYS in targets else sorted(targets)

    def fill(self, values: np.ndarray, placed: Placed) -> None:
        for column, repeat, span in zip(self.columns, self.owner, self.window):
            values[column] = values[self.rerun.columns_of(repeat, *self.spans[span])].max(
                initial=0.0)
