"""What a program is written from: families of columns, and rows."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Sequence, Tuple, Type, TypeVar, Union

import numpy as np

from .frame import Frame

#: A family, as its maker returns it.
F = TypeVar("F", bound="Family")


@dataclass
class Family:
    """Columns of one kind of variable, ``base`` to ``end``."""

    frame: Frame
    base: int
    end: int

    @property
    def columns(self) -> np.ndarray:
        """All columns of the family."""
        return np.arange(self.base, self.end)


@dataclass
class Ranges(Family):
    """A family in which owner ``o`` has windows ``first[o] .. last[o]``.

    The arrays are (owners,) int64; ``offset`` is the column of each owner's first window.
    """

    first: np.ndarray
    last: np.ndarray
    offset: np.ndarray

    @classmethod
    def make(cls: Type[F], frame: Frame, base: int, first: np.ndarray, last: np.ndarray,
             *more: Any) -> F:
        """From the windows of each owner; ``more``: what else a family has."""
        ends = np.concatenate([[0], np.cumsum(np.maximum(last - first + 1, 0))]).astype(np.int64)
        return cls(frame, base, base + int(ends[-1]), first, last, base + ends[:-1],  # type: ignore
                   *more)

    def columns_of(self, owner: int, begin: int = 0, end: int = 1 << 60) -> np.ndarray:
        """The columns of an owner, in windows from ``begin`` to ``end``."""
        first, last = int(self.first[owner]), int(self.last[owner])
        return self.offset[owner] - first + np.arange(max(begin, first), min(end, last) + 1)

    def at(self, owner: int, window: int) -> int:
        """A column, -1 where the owner has no variable in that window."""
        if self.first[owner] <= window <= self.last[owner]:
            return int(self.offset[owner] + window - self.first[owner])
        return -1

    def column(self, owner: np.ndarray, window: np.ndarray) -> np.ndarray:
        """The same for arrays of both."""
        inside = (window >= self.first[owner]) & (window <= self.last[owner])
        return np.where(inside, self.offset[owner] + window - self.first[owner], -1)

    def pairs(self) -> Tuple[np.ndarray, np.ndarray]:
        """Owner and window of every column of the family, in column order."""
        length = np.maximum(self.last - self.first + 1, 0)
        owner = np.repeat(np.arange(len(length)), length)
        window = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length) \
            + np.repeat(self.first, length)
        return owner, window


@dataclass
class Spots(Family):
    """A family that has a variable at some pairs of owner and window only.

    The arrays are (pairs,) int64, sorted by owner, then window.
    """

    owner: np.ndarray
    window: np.ndarray

    @classmethod
    def make(cls: Type[F], frame: Frame, base: int, pairs: Sequence[Tuple[int, int]],
             *more: Any) -> F:
        """Pairs of owner and window, each once; ``more``: what else a family has."""
        owner, window = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
        return cls(frame, base, base + len(owner), owner, window, *more)  # type: ignore[call-arg]

    def column(self, owner: np.ndarray, window: np.ndarray) -> np.ndarray:
        """Columns, -1 where there is no variable."""
        if not len(self.owner):
            return np.full(len(owner), -1, dtype=np.int64)
        stride = int(max(self.window.max(), np.max(window, initial=0))) + 2
        keys = self.owner * stride + self.window + 1
        wanted = np.asarray(owner) * stride + np.asarray(window) + 1
        index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[index] == wanted, self.base + index, -1)


class Rows:
    """A program that is being written: rows as arrays of (row, column, value), and all limits.

    Parameters
    ----------
    columns : int
    """

    def __init__(self, columns: int) -> None:
        self.count = 0
        #: (columns,) float64: cost, least and largest value of each column.
        self.cost, self.least, self.most = np.zeros(columns), np.zeros(columns), np.ones(columns)
        self._entries: List[Tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._lower: List[np.ndarray] = [np.zeros(0)]
        self._upper: List[np.ndarray] = [np.zeros(0)]

    def open(self, lower: Union[Sequence[float], np.ndarray],
             upper: Union[Sequence[float], np.ndarray]) -> np.ndarray:
        """New rows; returns their numbers."""
        numbers = np.arange(self.count, self.count + len(lower))
        self.count += len(lower)
        self._lower.append(np.asarray(lower, dtype=np.float64))
        self._upper.append(np.asarray(upper, dtype=np.float64))
        return numbers

    def add(self, rows: np.ndarray, columns: np.ndarray,
            values: Union[float, np.ndarray]) -> None:
        """Entries, with one value or one each; those with column -1 are left out."""
        used = columns >= 0
        self._entries.append((rows[used], columns[used], np.asarray(values, dtype=np.float64)[used]
                              if np.ndim(values) else np.full(used.sum(), values, np.float64)))

    def lower_last(self, lower: Union[float, np.ndarray], upper: Union[float, np.ndarray]) -> None:
        """Take so much off the limits of the rows that were opened last."""
        self._lower[-1] = self._lower[-1] - lower
        self._upper[-1] = self._upper[-1] - upper

    def limits(self) -> Tuple[np.ndarray, np.ndarray]:
        """(rows,) float64: the least and the largest value of each row."""
        return np.concatenate(self._lower), np.concatenate(self._upper)

    def matrix(self) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Start of each row, columns and values; entries of the same place are added up."""
        if not self._entries:
            return np.zeros(self.count + 1, dtype=np.int32), np.zeros(0, np.int32), np.zeros(0)
        rows, columns, values = map(np.concatenate, zip(*self._entries))
        count = len(self.cost)
        cells, which = np.unique(rows.astype(np.int64) * count + columns, return_inverse=True)
        value = np.bincount(which, weights=values, minlength=len(cells))
        start = np.searchsorted(cells, np.arange(self.count + 1) * count)
        return start.astype(np.int32), (cells % count).astype(np.int32), value
