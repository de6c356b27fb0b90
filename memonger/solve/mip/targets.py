"""What a value must be at hand for: right sides of the program's rows.

An op runs as one of its implementations, so what several of them read must be at hand for their
sum. Rows for each alone would let fractions of implementations share a fraction of the value.
"""
from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

import numpy as np

from .columns import Rows
from .problem import Reduced

#: Columns of which one may be 1, their value on the left of the row, and the row's lower limit.
_Sum = Tuple[Tuple[int, ...], float, float]

#: The target that is 1 in every plan.
ALWAYS = -1


class Targets:
    """Numbers for targets: a column, ``ALWAYS``, or below that a sum of columns.

    Parameters
    ----------
    reduced : Reduced
    variant_column : ndarray
        (variants of the graph,) int64.
    """

    def __init__(self, reduced: Reduced, variant_column: np.ndarray):
        self._reduced = reduced
        self._variant_column = variant_column
        self._sums: List[_Sum] = []
        self._number_of: Dict[_Sum, int] = {}

    def of_implementations(self, op: int, numbers: Sequence[int]) -> int:
        """1 where the op runs as one of these of its implementations."""
        variants = self._reduced.variant_of[op]
        if len(numbers) == len(variants):
            return ALWAYS
        with_own = 0 in numbers
        columns = [int(self._variant_column[variant])
                   for number, variant in enumerate(variants)
                   if number and (number in numbers) != with_own]
        # The op's own implementation is what no variant takes: 1 less the others.
        return self._number(columns, 1.0, 1.0) if with_own else self.of_columns(columns)

    def of_columns(self, columns: Sequence[int]) -> int:
        """The sum of columns of which one may be 1."""
        return int(columns[0]) if len(columns) == 1 else self._number(columns, -1.0, 0.0)

    def _number(self, columns: Sequence[int], value: float, lower: float) -> int:
        key = (tuple(sorted(columns)), value, lower)
        if key not in self._number_of:
            self._sums.append(key)
            self._number_of[key] = ALWAYS - len(self._sums)
        return self._number_of[key]

    def open(self, rows: Rows, targets: np.ndarray) -> np.ndarray:
        """New rows ``... >= target`` for (rows,) int64 targets; the left sides are yet to come."""
        lower = (targets == ALWAYS).astype(np.float64)
        summed = [(opened, self._sums[ALWAYS - 1 - targets[opened]])
                  for opened in np.flatnonzero(targets < ALWAYS)]
        for opened, (_, _, least) in summed:
            lower[opened] = least
        numbers = rows.open(lower, np.full(len(targets), np.inf))
        rows.add(numbers, np.where(targets >= 0, targets, -1), -1.0)
        for opened, (columns, value, _) in summed:
            rows.add(np.repeat(numbers[opened], len(columns)), np.array(columns), np.array(value))
        return numbers


def by_op(pairs: Sequence[Tuple[int, int]]) -> Dict[int, List[int]]:
    """The implementations of each op among pairs of op and number of an implementation."""
    numbers: Dict[int, List[int]] = {}
    for op, number in pairs:
        numbers.setdefault(op, []).append(number)
    return numbers
