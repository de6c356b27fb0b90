"""``python -m benchmarks --process``: the memory of processes beside what plans promise.

Each network of the zoo trains in two processes, without a plan and with one, at its published
batch, halved until it takes no more than ``--measure-memory``. Measured is the growth of resident
memory after imports.
"""
from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any, Dict, Iterator, List, Mapping, Sequence

from memonger.report.formatting import table
from memonger.util.errors import InfeasibleBudget, MemongerError
from memonger.util.processes import ask_module
from memonger.util.units import format_bytes
from memonger.zoo import nets

#: The share of a promised saving that a process must save.
SHARE = 0.9


@dataclass(frozen=True)
class Row:
    """One network in one environment."""

    network: str
    batch: int
    mkldnn: bool
    promised_unplanned_bytes: int = 0
    promised_bytes: int = 0
    unplanned_bytes: int = 0
    planned_bytes: int = 0
    #: Why there are no numbers.
    error: str = ""

    @property
    def ratio(self) -> float:
        """Bytes that the process saved, divided by those that the plan promised to save."""
        promised_bytes = self.promised_unplanned_bytes - self.promised_bytes
        return (self.unplanned_bytes - self.planned_bytes) / max(promised_bytes, 1)

    @property
    def holds(self) -> bool:
        return not self.error and self.planned_bytes <= self.unplanned_bytes and \
            self.ratio >= SHARE

    def to_dict(self) -> Dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "holds": self.holds}


def measure_network(network: str, batch: int = 0, budget: str = "50%", variants: str = "exact",
                    time_limit_s: float = 10.0, limit_bytes: int = 2 * 10 ** 9,
                    options: Mapping[str, Any] = {}) -> Row:
    """Plan a network and train it, unplanned and planned, in this process's environment."""
    from memonger.mx.calls import plan as api
    from memonger.mx.check.measure import allocated_bytes
    from memonger.mx.plugin.environment import mkldnn_is_on
    wanted = batch or nets.spec(network).batch
    while True:
        net = nets.build(network, wanted, **options)
        if batch or wanted == 1 or \
                api.estimate(net.symbol, shapes=net.shapes).total_bytes <= limit_bytes:
            break
        wanted //= 2
    try:
        try:
            plan = api.plan(net.symbol, budget=budget, variants=variants,
                            time_limit=time_limit_s, shapes=net.shapes)
        except InfeasibleBudget as error:  # most of a small batch's memory is parameters
            plan = api.plan(net.symbol, budget=error.minimum_bytes, variants=variants,
                            time_limit=time_limit_s, shapes=net.shapes)
        return Row(network, wanted, mkldnn_is_on(), plan.baseline_total_bytes, plan.total_bytes,
                   allocated_bytes(net.symbol, net.shapes),
                   allocated_bytes(plan.symbol, net.shapes))
    except MemongerError as error:
        return Row(network, wanted, mkldnn_is_on(), error=str(error).splitlines()[0])


def rows(networks: Sequence[str], mkldnn: str = "both", **options: Any) -> Iterator[Row]:
    """One row for each network and environment, each from a process of its own."""
    switches = {"on": ("1",), "off": ("0",), "both": ("1", "0")}[mkldnn]
    for network in networks:  # refused before the work
        nets.check(network, options.get("batch") or None, **options.get("options", {}))
    for network in networks or nets.names():
        for switch in switches:
            try:
                yield Row(**ask_module("benchmarks.mxnet.process", [network, options],
                                       {"MXNET_MKLDNN_ENABLED": switch}))
            except MemongerError as error:
                yield Row(network, options.get("batch", 0), switch == "1",
                          error="its process failed: %s" % error)


HEADER = ("network", "batch", "MKLDNN", "promised", "", "process", "", "saved of promised", "")


def render(found: Sequence[Row]) -> str:
    """The table as text."""
    lines: List[Sequence[str]] = [HEADER]
    for row in found:
        first = (row.network, str(row.batch), "on" if row.mkldnn else "off")
        if row.error:
            lines.append((*first, "-", "-", "-", "-", "-", row.error))
            continue
        sizes = [format_bytes(n) for n in (row.promised_unplanned_bytes, row.promised_bytes,
                                           row.unplanned_bytes, row.planned_bytes)]
        lines.append((*first, sizes[0], "-> " + sizes[1], sizes[2], "-> " + sizes[3],
                      "%.2f" % row.ratio, "" if row.holds else "too little"))
    return table(lines, "<><>>>>><")


def main(networks: Sequence[str], as_json: bool = False, mkldnn: str = "both",
         **options: Any) -> int:
    """Print the table; 1 when a process saves too little."""
    from memonger.util.files import write_out
    found: List[Row] = []
    for row in rows(networks, mkldnn, **options):
        found.append(row)
        if sys.stderr.isatty():
            sys.stderr.write("%s: %s\n" % (row.network, row.error or "%.2f" % row.ratio))
    write_out((json.dumps([row.to_dict() for row in found], indent=2) if as_json
               else render(found)) + "\n")
    return 0 if all(row.holds for row in found) else 1


if __name__ == "__main__":
    network, options = json.load(sys.stdin)
    print(json.dumps(asdict(measure_network(network, **options))))
