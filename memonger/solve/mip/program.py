"""A sparse 0/1 program."""
from __future__ import annotations

from dataclasses import dataclass
from typing import List, Sequence, Tuple

import numpy as np

from .columns import Ranges, Spots
from .streams import Lengths


@dataclass
class Program:
    """``minimise cost x`` with ``row_lower <= A x <= row_upper`` and ``lower <= x <= upper``.

    ``A`` is stored by rows: the entries of row ``r`` are those from ``start[r]`` to
    ``start[r + 1]`` of ``index`` (columns) and ``value``. Costs are seconds.
    """

    #: (columns,) float64 each.
    cost: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    #: (rows,) float64 each.
    row_lower: np.ndarray
    row_upper: np.ndarray
    #: (rows + 1,) int32; (entries,) int32; (entries,) float64.
    start: np.ndarray
    index: np.ndarray
    value: np.ndarray
    #: Bytes of one unit of the rows that hold the budget.
    unit_bytes: float
    live: Ranges
    rerun: Ranges
    #: Group ``o``'s memory is taken in place by the op that ends window ``w``.
    taken: Spots
    #: What may run again: op and number of its implementation.
    repeats: List[Tuple[int, int]]
    #: (variants of the graph,) int64: column of each that may be chosen, -1 for the others.
    variant_column: np.ndarray
    #: (windows,) int64: the constrained ops, increasing.
    constrained: np.ndarray
    #: First and last window of each span, and the columns for repeats that happen in it.
    spans: Sequence[Tuple[int, int]]
    again: Spots
    lengths: Lengths

    @property
    def num_columns(self) -> int:
        return len(self.cost)

    @property
    def num_rows(self) -> int:
        return len(self.row_lower)


def integer_columns(program: Program) -> np.ndarray:
    """Columns that are whole in a real plan: reruns, lives and variants."""
    chosen = program.variant_column[program.variant_column >= 0]
    return np.concatenate([np.arange(program.rerun.base, program.rerun.base + program.rerun.total),
                           np.arange(program.live.base, program.live.base + program.live.total),
                           chosen]).astype(np.int64)
