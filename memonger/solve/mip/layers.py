"""Rows that count whole buffers: sizes in layers, buffers of at least each size."""
from __future__ import annotations

from typing import Sequence, Tuple

import numpy as np

from .columns import Ranges, Rows, Spots
from .inplace_reuse import InplaceReuse
from .pools import Pools
from .problem import Reduced


def layer_sizes(reduced: Reduced, most: int) -> np.ndarray:
    """The buffer sizes that matter most, largest first; values in between count as smaller."""
    sizes = np.concatenate([reduced.size_bytes,
                            [span[0] for span in reduced.fixed_spans if span[3] > 0]])
    sizes = sizes[sizes > 0]
    if not most or not len(sizes):
        return np.zeros(0)
    distinct, counts = np.unique(sizes, return_counts=True)
    weights = distinct * counts
    chosen = np.argsort(-weights, kind="stable")[:most]
    return np.sort(distinct[chosen])[::-1].astype(np.float64)


def add_layer_rows(reduced: Reduced, rows: Rows, live: Ranges, pools: Pools, taken: Spots,
                   reuses: Sequence[Tuple[int, InplaceReuse]], ends_at: np.ndarray,
                   sizes: np.ndarray, base: int, upper: np.ndarray, budget_bytes: float,
                   unit: float) -> None:
    """``values of at least s bytes alive <= buffers of at least s bytes``; buffers fit."""
    if not len(sizes):
        return
    steps = sizes - np.append(sizes[1:], 0.0)
    most = upper[0] * unit if not np.isfinite(budget_bytes) else budget_bytes
    owner, window, columns = pools.held(reduced, live)
    behind = len(sizes) * pools.of_window(np.arange(len(ends_at)))
    for layer, size in enumerate(sizes):
        # A whole number: HiGHS calls programs infeasible that bound integers by fractions.
        upper[base + layer::len(sizes)][:pools.count] = np.floor(most / size + 1e-9)
        fixed = reduced.fixed_at_least(size)[ends_at]
        numbers = rows.open(np.full(len(ends_at), -np.inf), -fixed)
        rows.add(numbers, base + layer + behind, -1.0)
        large = reduced.size_bytes[owner] >= size
        rows.add(numbers[window[large]], columns[large], 1.0)
        for spot, reuse in reuses:
            rows.upper[-1][spot] -= sum(saved >= size for saved in reuse.places)
            groups = np.array([group for group, saved in reuse.sources if saved >= size], dtype=int)
            rows.add(np.full(len(groups), numbers[spot]),
                     taken.column(groups, np.full(len(groups), spot)), np.array(-1.0))
    total = rows.open(np.array([-np.inf]),
                      np.array([budget_bytes / unit if np.isfinite(budget_bytes) else 0.0]))
    rows.add(np.repeat(total, pools.count * len(sizes)),
             base + np.arange(pools.count * len(sizes)), np.tile(steps, pools.count) / unit)
    if not np.isfinite(budget_bytes):
        rows.add(total, np.zeros(1, dtype=np.int64), -1.0)
