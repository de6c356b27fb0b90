"""A sparse 0/1 program."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .choices import Lives, Reruns, Variants
from .frame import Frame
from .memory import Memory
from .spans import Spans
from .streams import Lengths
from .workspace import Workspace


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
    frame: Frame
    live: Lives
    rerun: Reruns
    variant: Variants
    taken: Memory
    again: Spans
    length: Lengths
    workspace: Workspace

    @property
    def constrained(self) -> np.ndarray:
        """(windows,) int64: the constrained ops, increasing."""
        return self.frame.ends_at

    @property
    def num_columns(self) -> int:
        return len(self.cost)

    @property
    def num_rows(self) -> int:
        return len(self.row_lower)


def integer_columns(program: Program) -> np.ndarray:
    """Columns that are whole in a real plan: reruns, lives and variants."""
    chosen = program.variant.column_of[program.variant.column_of >= 0]
    return np.concatenate([program.rerun.columns, program.live.columns, chosen]).astype(np.int64)
