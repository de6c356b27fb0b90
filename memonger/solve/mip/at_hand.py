"""Rows that say where values must be at hand: for reads, lives and reruns."""
from __future__ import annotations

from dataclasses import dataclass
from typing import List, Tuple

import numpy as np

from .choices import Lives, Reruns, Variants
from .columns import Rows
from .memory import Memory
from .targets import Targets, by_op


@dataclass
class AtHand:
    """``at hand(group, window) >= target``: a value is found, made, or made again in a window."""

    live: Lives
    rerun: Reruns
    variant: Variants
    taken: Memory

    def __post_init__(self) -> None:
        self.frame = self.live.frame

    def add_rows(self, rows: Rows, target: Targets) -> None:
        reduced, window_of = self.frame.reduced, self.frame.window_of
        group_of, spot_of, target_of = self._needs(target)
        if not len(group_of):
            return
        needed = reduced.scattered_group[group_of] | (spot_of > window_of[reduced.birth][group_of])
        group_of, spot_of, target_of = np.unique(
            np.stack([group_of[needed], spot_of[needed], target_of[needed]]), axis=1)
        numbers = target.open(rows, target_of)
        rows.add(numbers, self.live.column(group_of, spot_of - 1), 1.0)
        rows.add(numbers, self.taken.column(group_of, spot_of - 1), -1.0)
        makers = [self.rerun.makers(group) for group in range(len(reduced.makers))]
        for position in range(max(map(len, makers), default=0)):
            maker = np.array([repeats[position] if position < len(repeats) else -1
                              for repeats in makers], dtype=np.int64)[group_of]
            rows.add(numbers, np.where(
                maker >= 0, self.rerun.column(np.maximum(maker, 0), spot_of), -1), 1.0)
        rows.lower_last(self._first_runs(rows, numbers, group_of, spot_of), 0.0)

    def _needs(self, target: Targets) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(needs,) int64 each: a group, a window, and what the group must be at hand for."""
        owner, window = self.live.pairs()
        needs: List[Tuple[np.ndarray, np.ndarray, np.ndarray]] = [
            (owner, window, self.live.columns)]
        read: List[Tuple[int, int, int]] = []
        for group, readers in enumerate(self.frame.reduced.readers):
            for op, implementations in by_op(readers).items():
                read.append((group, int(self.frame.window_of[op]),
                             target.of_implementations(op, implementations)))
                again = [self.rerun.number_of[op, number] for number in implementations
                         if (op, number) in self.rerun.number_of]
                if len(again) == 1:
                    columns = self.rerun.columns_of(again[0])
                    needs.append((np.full(len(columns), group),
                                  self.rerun.first[again[0]] + np.arange(len(columns)), columns))
                    continue
                for spot in range(min(self.rerun.first[again], default=0),
                                  max(self.rerun.last[again], default=-1) + 1):
                    columns = self.rerun.column(np.array(again), np.full(len(again), spot))
                    if (columns >= 0).any():
                        read.append((group, spot,
                                     target.of_columns(columns[columns >= 0].tolist())))
        needs.append(tuple(np.array(read, dtype=np.int64).reshape(-1, 3).T))
        groups, spots, columns = map(np.concatenate, zip(*needs))
        return groups, spots, columns

    def _first_runs(self, rows: Rows, numbers: np.ndarray, group_of: np.ndarray,
                    spot_of: np.ndarray) -> np.ndarray:
        """(rows,) float64: how often a value is made in a row's window whatever is chosen.

        One that only some implementations make is at hand there when one of those is chosen.
        """
        reduced = self.frame.reduced
        always = np.zeros(len(numbers))
        for index in np.flatnonzero(reduced.scattered_group[group_of]):
            for op, number in reduced.makers[group_of[index]]:
                if self.frame.window_of[op] != spot_of[index]:
                    continue
                variants, row = reduced.variant_of[op], numbers[index:index + 1]
                if number > 0:
                    rows.add(row, self.variant.column_of[[variants[number]]], 1.0)
                    continue
                always[index] += 1.0
                others = variants[1:]
                rows.add(np.repeat(row, len(others)), self.variant.column_of[others], -1.0)
        return always
