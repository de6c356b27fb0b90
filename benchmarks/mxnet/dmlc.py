"""``python -m benchmarks dmlc``: the ResNet-50 of dmlc/mxnet-memonger at smaller and smaller pools.

Batch 32, units 3-4-6-3, op times of a device with 10 TFLOP/s and 600 GB/s. dmlc's own plan takes
1658 MB instead of 4899 and recomputes 93 % of the forward pass (README of dmlc/mxnet-memonger and
its example; Chen et al., 2016). The limits are goals that this project set itself.
Megabytes are MXNet's, 2^20 bytes of the pool.
"""
from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any, List, Optional, Sequence

from memonger.report.formatting import format_extra, format_percent, table
from memonger.util.errors import InfeasibleBudget, InputError


@dataclass(frozen=True)
class Target:
    """A pool size with the extra time allowed for it."""

    pool_mb: int
    variants: str
    #: Largest extra time as a share of the forward pass, or of the whole step; None: any.
    of_forward: Optional[float] = None
    of_step: Optional[float] = None

    @property
    def limit(self) -> str:
        """The limit of time in words."""
        if self.of_forward is not None:
            return format_percent(self.of_forward) + " of the forward pass"
        return "a plan" if self.of_step is None else format_percent(self.of_step) + " of the step"


#: 1633 and 980 MB are a third and a fifth of the unplanned 4899.
TARGETS = (Target(2000, "none", of_forward=0.24), Target(1658, "none", of_forward=0.29),
           Target(1000, "none", of_step=0.126), Target(800, "none", of_step=0.148),
           Target(700, "none", of_step=0.185), Target(600, "none", of_step=0.25),
           Target(1633, "all", of_step=0.03), Target(980, "all", of_step=0.09))


@dataclass(frozen=True)
class Row:
    """What was found for a target; times are shares of the unplanned step."""

    target: Target
    pool_bytes: int = 0
    overhead: float = 0.0
    #: No plan of the class has less overhead at this budget.
    bound: float = 0.0
    #: The unplanned forward pass as a share of the step.
    forward: float = 1.0
    planning_s: float = 0.0
    error: str = ""

    @property
    def of_forward(self) -> float:
        return self.overhead / self.forward

    @property
    def kept(self) -> bool:
        """Whether there is a plan and it takes no more time than the target allows."""
        if self.error or self.pool_bytes > self.target.pool_mb << 20:
            return False
        if self.target.of_forward is not None:
            return self.of_forward <= self.target.of_forward
        return self.target.of_step is None or self.overhead <= self.target.of_step


def run(targets: Sequence[Target] = TARGETS) -> List[Row]:
    """Plan for each target, one after the other, as ``memonger.plan`` does."""
    from memonger.mx.calls.binding import Binding
    from memonger.mx.calls.opening import open_network
    from memonger.planning.planning import plan_network
    from memonger.planning.requests import PlanRequest
    from memonger.zoo import nets
    net = nets.build("dmlc_resnet50", 32)
    opened = open_network(net.symbol, Binding(net.shapes), "reference")
    fixed_bytes = sum(opened.outside_bytes.values())
    forward = opened.graph.forward_time_s / opened.graph.time_s
    rows = []
    for target in targets:
        started_s = time.perf_counter()
        try:
            plan = plan_network(opened, PlanRequest(fixed_bytes + (target.pool_mb << 20),
                                                     variants=target.variants))
        except InfeasibleBudget as error:
            rows.append(Row(target, error=str(error).splitlines()[0]))
            continue
        rows.append(Row(target, plan.pool_bytes, plan.overhead, plan.bound, forward,
                        time.perf_counter() - started_s))
    return rows


def render(rows: Sequence[Row]) -> str:
    """The table as text."""
    lines = [["pool at most", "variants", "pool", "of the forward pass", "of the step", "bound",
              "limit", "planned in", "kept"]]
    for row in rows:
        target = row.target
        found = [row.error, "", "", "", target.limit, ""] if row.error else [
            "%.1f MB" % (row.pool_bytes / 2 ** 20), format_extra(row.of_forward),
            format_extra(row.overhead), format_extra(row.bound), target.limit,
            "%.1f s" % row.planning_s]
        lines.append(["%d MB" % target.pool_mb, target.variants, *found,
                      "yes" if row.kept else "no"])
    return table(lines, "><>>>>>><")


def main(names: Sequence[str], as_json: bool = False) -> int:
    """Print the table; 1 when a limit is not kept."""
    if names:
        raise InputError("python -m benchmarks dmlc takes no networks, not %s" % names[0])
    rows = run()
    found: List[Any] = [{**asdict(row), "kept": row.kept} for row in rows]
    print(json.dumps(found, indent=2) if as_json else render(rows))
    return 0 if all(row.kept for row in rows) else 1
