"""Rows for the bytes at constrained ops, and the columns for what an op takes in place there."""
from __future__ import annotations

from dataclasses import dataclass
from typing import List, Tuple

import numpy as np

from .choices import Lives
from .columns import Rows, Spots
from .frame import Frame, Placed
from .inplace_reuse import InplaceReuse
from .workspace import Workspace


@dataclass
class Memory(Spots):
    """``taken[t, j]``: the constrained op that ends window ``j`` works in the value's memory.

    The value is gone then. Only for ops that save memory in no other way.
    """

    #: The window that each op with such values ends.
    reuses: List[Tuple[int, InplaceReuse]]

    @classmethod
    def of(cls, frame: Frame, base: int) -> "Memory":
        reuses = [(frame.spot_at[reuse.op], reuse) for reuse in frame.reduced.inplace_reuses
                  if reuse.op in frame.spot_at]
        return cls.make(frame, base, [(group, window) for window, reuse in reuses
                                      for group, _ in reuse.sources], reuses)

    def add_rows(self, rows: Rows, live: Lives, workspace: Workspace) -> None:
        """What is alive at each constrained op, less what it takes in place, fits the budget, with
        the workspace beyond the least.

        Where bytes are minimised the budget is column 0. An op takes only what is live, and no
        more than it has outputs for.
        """
        frame, reduced, unit = self.frame, self.frame.reduced, self.frame.unit_bytes
        limit = 0.0 if frame.minimises_peak else frame.budget_bytes / unit
        memory = rows.open(np.full(len(frame.ends_at), -np.inf),
                           limit - reduced.profile_bytes[frame.ends_at] / unit)
        if frame.minimises_peak:
            rows.cost[0] = 1.0
            rows.most[0] = float(
                reduced.size_bytes.sum() + reduced.profile_bytes.max(initial=0.0)
                + workspace.above_bytes) / unit
            rows.add(memory, np.zeros(len(memory), dtype=np.int64), -1.0)
        owner, window = live.pairs()
        rows.add(memory[window], live.columns, reduced.size_bytes[owner] / unit)
        for column in workspace.columns:
            rows.add(memory, np.full(len(memory), column), workspace.above_bytes / unit)
        if not self.reuses:
            return
        saved, most = np.zeros(len(memory)), np.zeros(len(memory))
        bytes_of = {(group, spot): size for spot, reuse in self.reuses
                    for group, size in reuse.sources}
        for spot, reuse in self.reuses:
            saved[spot], most[spot] = sum(reuse.places), len(reuse.places)
        rows.lower_last(0.0, saved / unit)
        rows.add(memory[self.window], self.columns, -np.array(
            [bytes_of[pair] for pair in zip(self.owner.tolist(), self.window.tolist())]) / unit)
        spots = np.array([spot for spot, _ in self.reuses])
        places = np.zeros(len(memory), dtype=np.int64)
        places[spots] = rows.open(np.full(len(spots), -np.inf), most[spots])
        rows.add(places[self.window], self.columns, 1.0)
        numbers = rows.open(np.full(len(self.columns), -np.inf), np.zeros(len(self.columns)))
        rows.add(numbers, self.columns, 1.0)
        rows.add(numbers, live.column(self.owner, self.window), -1.0)

    def fill(self, values: np.ndarray, placed: Placed) -> None:
        for column, group, window in zip(self.columns, self.owner, self.window):
            values[column] = int(group) in placed.taken[int(self.frame.ends_at[window])]
