"""The column for the workspace beyond the least, where variants decide how large it is.

Pool and workspace share a budget: what one variant takes from the largest workspace is the pool's
only where no other op needs as much.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Tuple

import numpy as np

from ...graph.schedule import Schedule
from ...memory.workspace import workspace_bytes
from .choices import Variants
from .columns import Family, Rows
from .frame import Frame, Placed
from .problem import Reduced


def least_and_most(reduced: Reduced) -> Tuple[int, int]:
    """Bytes of the smallest and of the largest workspace that variants can give a step."""
    sizes = [[way.workspace_bytes for way in ways] for ways in reduced.implementations]
    return max(map(min, sizes), default=0), max(map(max, sizes), default=0)


def above_least_bytes(reduced: Reduced, schedule: Schedule) -> int:
    """What a schedule's workspace takes beyond the least."""
    return max(0, workspace_bytes(reduced.graph, schedule) - least_and_most(reduced)[0])


@dataclass
class Workspace(Family):
    """One column, the share of what the largest workspace takes beyond the least; or none."""

    least_bytes: int
    above_bytes: int

    @classmethod
    def of(cls, frame: Frame, base: int) -> "Workspace":
        least, most = least_and_most(frame.reduced)
        return cls(frame, base, base + (most > least), least, most - least)

    def add_rows(self, rows: Rows, variant: Variants) -> None:
        """The workspace is as large as that of any op as it runs."""
        if not self.above_bytes:
            return
        reduced = self.frame.reduced
        found: Dict[Tuple[float, ...], List[int]] = {}
        for ways, variants in zip(reduced.implementations, reduced.variant_of):
            shares = [max(0, way.workspace_bytes - self.least_bytes) / self.above_bytes
                      for way in ways]
            if any(shares):
                found[(*shares, *variants)] = variants[1:]
        for key, others in found.items():
            row = rows.open([key[0]], [np.inf])
            rows.add(row, self.columns, 1.0)
            rows.add(np.repeat(row, len(others)), variant.column_of[others],
                     key[0] - np.array(key[1:len(others) + 1]))

    def fill(self, values: np.ndarray, placed: Placed) -> None:
        values[self.columns] = above_least_bytes(
            self.frame.reduced, placed.schedule) / max(self.above_bytes, 1)
