"""What counts at each constrained op: all that is alive, or what is alive in each of two pools.

A CachedOp has a pool for forward and one for backward. What backward reads of forward lies in the
first one, and its memory is never used again; what is made again lies in the second one. So the
whole takes as much as forward at its worst, and beside it as much as backward makes itself.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

import numpy as np

from .columns import Ranges, Rows, Spots
from .problem import Reduced


@dataclass(frozen=True)
class Pools:
    """The columns of the pools, and in which windows they count."""

    #: The window that ends with the last forward op where there are two pools; else -1.
    boundary: int
    #: A value that forward may make is in the second pool at the end of a window.
    remade: Spots
    #: Units that the first pool takes; -1 where there is one pool.
    forward_column: int

    @classmethod
    def of(cls, reduced: Reduced, live: Ranges, ends_at: np.ndarray, base: int,
           whole: bool) -> "Pools":
        """For a program with these columns and constrained ops; new columns begin at ``base``.

        Bytes that are alive count together, whatever pool they are in; buffers (``whole``) apart.
        """
        if not (whole and reduced.two_pools):
            return cls(-1, Spots.make([], base), -1)
        boundary = int(np.searchsorted(ends_at, reduced.first_backward - 1))
        owner, window = live.pairs()
        may = (reduced.birth < reduced.first_backward)[owner] & (window > boundary)
        remade = Spots.make(list(zip(owner[may].tolist(), window[may].tolist())), base)
        return cls(boundary, remade, base + len(remade.owner))

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return len(self.remade.owner) + (self.forward_column >= 0)

    @property
    def count(self) -> int:
        return 2 if self.forward_column >= 0 else 1

    def of_window(self, window: np.ndarray) -> np.ndarray:
        """The pool that each window counts in, 0 or 1."""
        return (np.asarray(window) > self.boundary).astype(np.int64) * (self.count - 1)

    def fixed_bytes(self, reduced: Reduced, ends_at: np.ndarray) -> np.ndarray:
        """(windows,) float64: what no decision changes."""
        return (reduced.profile_bytes if self.count == 1 else reduced.fixed_in_pool)[ends_at]

    def held(self, reduced: Reduced, live: Ranges) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(entries,) int64 each: a group, a window in whose pool it counts, and the column."""
        owner, window = live.pairs()
        column = live.base + np.arange(live.total)
        if self.count == 1:
            return owner, window, column
        alone = (window <= self.boundary) | (reduced.birth >= reduced.first_backward)[owner]
        return (np.concatenate([owner[alone], self.remade.owner]),
                np.concatenate([window[alone], self.remade.window]),
                np.concatenate([column[alone],
                                self.remade.base + np.arange(len(self.remade.owner))]))

    def owned(self, live: Ranges, owner: np.ndarray, window: np.ndarray) -> np.ndarray:
        """The columns of groups in the pool in which each window counts."""
        plain = live.column(owner, window)
        if self.count == 1:
            return plain
        again = self.remade.column(owner, window)
        return np.where(again >= 0, again, plain)

    def add_rows(self, rows: Rows, live: Ranges) -> None:
        """What is alive in backward was alive at the end of forward, or is made again."""
        owner, window = self.remade.owner, self.remade.window
        if not len(owner):
            return
        numbers = rows.open(np.zeros(len(owner)), np.full(len(owner), np.inf))
        rows.add(numbers, self.remade.base + np.arange(len(owner)), 1.0)
        rows.add(numbers, live.column(owner, window), -1.0)
        rows.add(numbers, live.column(owner, np.full(len(owner), self.boundary)), 1.0)
