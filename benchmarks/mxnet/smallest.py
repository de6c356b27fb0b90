"""``python -m benchmarks smallest``: the least memory that plans of each network take, at any cost.

Beside the smallest plan that is found stands what is proven: no plan takes less. Batches are those
of the zoo, op times those of a device with 10 TFLOP/s and 600 GB/s.
"""
from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Iterator, List, Optional, Sequence

from memonger.report.formatting import format_extra, format_percent, table
from memonger.util.units import format_bytes

from .cases import COMPARED

#: The operator variants that plans may use.
VARIANTS = ("none", "all")


@dataclass(frozen=True)
class Row:
    """One network: totals in bytes."""

    network: str
    batch: int
    variants: str
    unplanned_bytes: int
    smallest_bytes: int
    #: No plan takes less; 0: nothing is proven.
    proven_bytes: int
    #: Extra time of the smallest plan as a share of the step.
    overhead: float

    @property
    def gap(self) -> Optional[float]:
        """By how much the smallest plan exceeds what is proven, as a share of that."""
        return self.smallest_bytes / self.proven_bytes - 1 if self.proven_bytes else None


def run(networks: Sequence[str]) -> Iterator[Row]:
    """Ask for the least memory, however long it takes to run again."""
    from memonger.mx.calls.binding import Binding
    from memonger.mx.calls.opening import open_network
    from memonger.solve import solve
    from memonger.solve.options import Options
    from memonger.zoo import nets
    for name in networks:
        net = nets.build(name)
        opened = open_network(net.symbol, Binding(net.shapes), "reference")
        for variants in VARIANTS:
            graph = opened.graph if variants == "none" \
                else opened.with_variants(exact_only=False).graph
            plan = solve(graph, None, "auto", Options(
                objective="memory", storage=opened.storage, variants=variants,
                fixed_bytes=dict(opened.outside_bytes)))
            yield Row(name, net.batch, variants, opened.unplanned.total_bytes,
                      plan.total_bytes, plan.minimum_total_bytes or 0, plan.overhead)


def render(rows: Sequence[Row]) -> str:
    """The table as text."""
    lines: List[Sequence[str]] = [("network", "batch", "variants", "unplanned", "smallest plan",
                                   "extra time", "proven", "gap")]
    lines += [(row.network, str(row.batch), row.variants, format_bytes(row.unplanned_bytes),
               format_bytes(row.smallest_bytes), format_extra(row.overhead),
               format_bytes(row.proven_bytes),
               "" if row.gap is None else format_percent(row.gap)) for row in rows]
    return table(lines, "<><>>>>>")


def main(names: Sequence[str], as_json: bool = False) -> int:
    """Print the table; ``names`` are networks, none: those of the comparison."""
    rows = list(run(names or COMPARED))
    print(json.dumps([{**asdict(row), "gap": row.gap} for row in rows], indent=2)
          if as_json else render(rows))
    return 0
