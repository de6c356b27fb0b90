"""What a program is written from: families of columns, and rows."""
from __future__ import annotations

from dataclasses import dataclass
from typing import List, Sequence, Tuple, Union

import numpy as np


@dataclass
class Ranges:
    """Columns of a family of variables: owner ``o`` has windows ``first[o] .. last[o]``.

    The arrays are (owners,) int64; ``offset`` is the column of each owner's first window.
    """

    first: np.ndarray
    last: np.ndarray
    offset: np.ndarray
    #: Columns of the family are ``base`` to ``base + total``.
    base: int
    total: int

    @classmethod
    def make(cls, first: np.ndarray, last: np.ndarray, base: int) -> "Ranges":
        ends = np.concatenate([[0], np.cumsum(np.maximum(last - first + 1, 0))]).astype(np.int64)
        return cls(first, last, base + ends[:-1], base, int(ends[-1]))

    @property
    def slice(self) -> slice:
        """All columns of the family."""
        return slice(self.base, self.base + self.total)

    def column(self, owner: np.ndarray, window: np.ndarray) -> np.ndarray:
        """Columns, -1 where the owner has no variable in that window."""
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
class Spots:
    """Columns of a family that has a variable at some pairs of owner and window only.

    The arrays are (pairs,) int64, sorted by owner, then window.
    """

    owner: np.ndarray
    window: np.ndarray
    #: The column of the first pair; the others follow in order.
    base: int

    @classmethod
    def make(cls, pairs: Sequence[Tuple[int, int]], base: int) -> "Spots":
        """Pairs of owner and window, each once."""
        owner, window = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
        return cls(owner, window, base)

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
    """Rows collected as arrays of (row, column, value), and the limits of each row."""

    def __init__(self) -> None:
        self.count = 0
        self.rows: List[np.ndarray] = []
        self.columns: List[np.ndarray] = []
        self.values: List[np.ndarray] = []
        self.lower: List[np.ndarray] = []
        self.upper: List[np.ndarray] = []

    def open(self, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
        """New rows; returns their numbers."""
        numbers = np.arange(self.count, self.count + len(lower))
        self.count += len(lower)
        self.lower.append(np.asarray(lower, dtype=np.float64))
        self.upper.append(np.asarray(upper, dtype=np.float64))
        return numbers

    def add(self, rows: np.ndarray, columns: np.ndarray,
            values: Union[float, np.ndarray]) -> None:
        """Entries, with one value or one each; those with column -1 are left out."""
        used = columns >= 0
        self.rows.append(rows[used])
        self.columns.append(columns[used])
        self.values.append(np.asarray(values, dtype=np.float64)[used] if np.ndim(values)
                           else np.full(len(self.rows[-1]), values, dtype=np.float64))

    def matrix(self, columns: int) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Start of each row, columns and values; entries of the same place are added up."""
        if not self.rows:
            return np.zeros(self.count + 1, dtype=np.int32), np.zeros(0, np.int32), np.zeros(0)
        cells = np.concatenate(self.rows).astype(np.int64) * columns + np.concatenate(self.columns)
        cells, which = np.unique(cells, return_inverse=True)
        value = np.bincount(which, weights=np.concatenate(self.values), minlength=len(cells))
        start = np.searchsorted(cells, np.arange(self.count + 1) * columns)
        return start.astype(np.int32), (cells % columns).astype(np.int32), value
