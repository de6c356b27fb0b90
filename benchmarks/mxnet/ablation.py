"""``python -m benchmarks ablation``: what each part of the search is worth.

Every network is planned with the whole search, then without each part in turn. A positive number
says by how many percentage points of the step time plans cost more without the part. Work is
counted, so the table does not depend on how busy the machine is.
"""
from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Dict, Iterator, Mapping, Optional, Sequence, Tuple

from memonger.report.formatting import table
from memonger.solve.auto import ROWS
from memonger.solve.search.native import PARTS as NATIVE_PARTS
from memonger.util.errors import InfeasibleBudget, InputError

#: Rows of the search, and parts of its native search: all that can be left out.
PARTS: Sequence[str] = (*(row.name for row in ROWS if row.name not in (
    "unplanned", "first bound", "rounds")), *NATIVE_PARTS)
#: Where the parts differ most: network, share of the unplanned total, variants.
CASES: Sequence[Tuple[str, str, str]] = (
    *((name, "25%", variants)
      for name in ("densenet121", "inception_v3", "mobilenet_v2", "unet", "nasnet_cifar10",
                   "dmlc_resnet50")
      for variants in ("none", "exact")),
    ("resnet50", "20%", "none"), ("resnet50", "20%", "exact"), ("dmlc_resnet50", "15%", "none"),
    ("gan", "35%", "none"))


@dataclass(frozen=True)
class Row:
    """Plans without a part; overheads are shares of the unplanned step, None: refused."""

    part: str
    overheads: Mapping[str, Optional[float]]

    def change(self, whole: "Row") -> Iterator[Tuple[str, float]]:
        """Extra overhead of each plan that both searches found."""
        for case, overhead in self.overheads.items():
            base = whole.overheads[case]
            if overhead is not None and base is not None:
                yield case, overhead - base


def run(parts: Sequence[str], cases: Sequence[Tuple[str, str, str]] = CASES) -> Iterator[Row]:
    """Plan every case with the whole search, then without each part."""
    from memonger.mx.calls.binding import Binding
    from memonger.mx.calls.opening import open_network
    from memonger.planning.requests import PlanRequest
    from memonger.planning.searches import plan_network
    from memonger.zoo import nets
    networks = {}
    for name in dict.fromkeys(name for name, _, _ in cases):
        net = nets.build(name)
        networks[name] = open_network(net.symbol, Binding(net.shapes), "reference")
    for part in ("", *parts):
        overheads: Dict[str, Optional[float]] = {}
        for name, budget, variants in cases:
            case = "%s %s %s" % (name, budget, variants)
            try:
                overheads[case] = plan_network(networks[name], PlanRequest(
                    budget, variants=variants, without=frozenset([part]))).overhead
            except InfeasibleBudget:
                overheads[case] = None
        yield Row(part, overheads)


def render(rows: Sequence[Row]) -> str:
    """The table as text; changes in percentage points of the step."""
    whole = rows[0]
    lines = [["without", "mean", "worst", "where", "best", "where", "refused"]]
    for row in rows[1:]:
        changes = sorted(((100 * more, case) for case, more in row.change(whole)), reverse=True)
        if not changes:
            continue
        refused = sum(row.overheads[case] is None and overhead is not None
                      for case, overhead in whole.overheads.items())
        mean = sum(more for more, _ in changes) / len(changes)
        lines.append([row.part, "%+.2f" % mean, "%+.2f" % changes[0][0], changes[0][1],
                      "%+.2f" % changes[-1][0], changes[-1][1], str(refused)])
    return table(lines, "<>><><>")


def main(names: Sequence[str], as_json: bool = False) -> int:
    """Print the table; ``names`` are parts, none: all."""
    for name in names:
        if name not in PARTS:
            raise InputError("no part %r; there are %s" % (name, ", ".join(PARTS)))
    rows = list(run(names or list(PARTS)))
    print(json.dumps([asdict(row) for row in rows], indent=2) if as_json else render(rows))
    return 0
