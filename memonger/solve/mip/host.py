"""Rows for the memory of the host."""
from __future__ import annotations

from typing import Dict, List, Tuple

import numpy as np

from .choices import Variants
from .columns import Rows


def add_host_rows(rows: Rows, variants: Variants) -> None:
    """Values that variants keep on the host fit there, whenever most are alive.

    A value that a variant makes lives at least to the last op that reads it in that variant. What
    no variant makes is left out, and so are reads by other variants: every schedule that keeps the
    host's budget keeps these rows.
    """
    reduced = variants.frame.reduced
    tensors = reduced.graph.tensors
    if not np.isfinite(reduced.host_budget_bytes):
        return
    budget_bytes = reduced.host_budget_bytes - sum(
        tensors[t].size_bytes for t in reduced.graph.host_tensors if tensors[t].producer < 0)
    changes: List[Tuple[int, int, int]] = []  # op, bytes, variant
    for variant in reduced.variants:
        chosen = reduced.graph.implementations_of(variant)
        for maker, implementation in chosen:
            for tensor in reduced.graph.host_tensors.intersection(implementation.outputs):
                end = max([op for op, other in chosen if tensor in other.reads] + [maker])
                if tensor in reduced.graph.output_set:
                    end = reduced.num_ops
                size_bytes = tensors[tensor].size_bytes
                changes += [(maker, size_bytes, variant), (end + 1, -size_bytes, variant)]
    alive: Dict[int, int] = {}
    grown = False
    unit = max(budget_bytes, 1.0)
    for _, size_bytes, variant in sorted(changes):
        if size_bytes < 0 and grown:
            row = rows.open([-np.inf], [budget_bytes / unit])
            rows.add(np.repeat(row, len(alive)), variants.column_of[list(alive)],
                     np.array(list(alive.values())) / unit)
        grown = size_bytes > 0
        alive[variant] = alive.get(variant, 0) + size_bytes
