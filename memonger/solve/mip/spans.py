"""Rows over several windows at once.

Cutting backward into windows lets a fraction of a rerun in one window serve another fraction of a
rerun in a later one: two halves of an op that reads a value need half a rerun of it. Over a *span*
of windows an op runs again or does not, and what it reads was live before the span or is made
again in it. These rows say so, for each span, as if it were one window, beside those of the
windows.
"""
from __future__ import annotations

from typing import Dict, List, Sequence, Set, Tuple

import numpy as np

from .columns import Ranges, Rows, Spots
from .problem import Reduced
from .targets import ALWAYS, Targets, by_op


def span_pairs(rerun: Ranges, spans: Sequence[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """(repeat, span) of the columns: the repeat happens in the span."""
    return [(repeat, number) for repeat in range(len(rerun.first))
            for number, (begin, end) in enumerate(spans)
            if rerun.first[repeat] <= end and rerun.last[repeat] >= begin]


def add_span_rows(reduced: Reduced, rows: Rows, live: Ranges, rerun: Ranges, again: Spots,
                  spans: Sequence[Tuple[int, int]], number_of: Dict[Tuple[int, int], int],
                  ends_at: np.ndarray, window_of: np.ndarray, target: Targets) -> None:
    """``reruns in the span >= again``; what is read, or live, was live before or is made again."""
    columns = again.base + np.arange(len(again.owner))
    numbers = rows.open(np.zeros(len(columns)), np.full(len(columns), np.inf))
    rows.add(numbers, columns, -1.0)
    for number, repeat, span in zip(numbers, again.owner, again.window):
        begin, end = spans[span]
        for window in range(max(begin, int(rerun.first[repeat])),
                            min(end, int(rerun.last[repeat])) + 1):
            rows.add(np.array([number]),
                     np.array([rerun.offset[repeat] + window - rerun.first[repeat]]), np.array(1.0))
    column_of = {(int(r), int(s)): int(c) for r, s, c in zip(again.owner, again.window, columns)}
    for span, (begin, end) in enumerate(spans):
        start = int(ends_at[begin - 1]) if begin else -1
        for group in range(len(reduced.size_bytes)):
            if reduced.scattered_group[group] or reduced.birth[group] > start:
                continue
            makers = [] if reduced.frozen_group[group] else [
                column_of[number_of[maker], span] for maker in reduced.makers[group]
                if (number_of.get(maker, -1), span) in column_of]
            before = live.column(np.array([group]), np.array([begin - 1]))
            targets: Set[int] = set()
            for op, implementations in by_op(reduced.readers[group]).items():
                repeats = [number_of.get((op, number), -1) for number in implementations]
                again_in = [column_of[repeat, span] for repeat in repeats
                            if (repeat, span) in column_of]
                if again_in:
                    targets.add(target.of_columns(again_in))
                if begin <= window_of[op] <= end:
                    targets.add(target.of_implementations(op, implementations))
            last = live.column(np.array([group]), np.array([end]))
            if last[0] >= 0:
                targets.add(int(last[0]))
            # What is at hand in every plan is so for all else.
            opened = target.open(rows, np.array(
                [ALWAYS] if ALWAYS in targets else sorted(targets), dtype=np.int64))
            for column in [int(before[0]), *makers]:
                rows.add(opened, np.full(len(opened), column), 1.0)
