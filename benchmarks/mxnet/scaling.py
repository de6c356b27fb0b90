"""``python -m benchmarks scaling``: time and memory of planning, from 100 to 20,000 ops.

Each network is planned in a process of its own by ``memonger.plan`` with default arguments, at half
and at a quarter of its unplanned total, with the op times of one device everywhere. Seconds are of
the CPU, over all threads, from the symbol to the confirmed plan; memory is what the process takes
at most. Building the network and importing MXNet are not counted.
"""
from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from memonger.report.formatting import format_extra, table
from memonger.util.errors import InputError, MemongerError
from memonger.util.processes import ask_module

from .cases import Row


class Task(NamedTuple):
    """A ResNet by its blocks, and the CPU seconds that planning may take at half of its total."""

    blocks: Tuple[int, int, int, int]
    limit_s: float


#: dmlc's ResNets, named by their forward ops. The limits of 180, 700 and 10,000 ops are this
#: project's goals; those between follow.
TASKS: Dict[str, Task] = {
    "resnet_100": Task((1, 2, 3, 2), 3.0),
    "resnet_180": Task((3, 4, 6, 3), 3.0),
    "resnet_700": Task((3, 24, 36, 3), 8.0),
    "resnet_3000": Task((60, 80, 110, 20), 22.0),
    "resnet_10000": Task((300, 300, 289, 20), 60.0),
    "resnet_20000": Task((600, 600, 598, 20), 120.0),
}
#: A quarter of the total may take twice as long.
BUDGETS = {"50%": 1.0, "25%": 2.0}


@dataclass(frozen=True)
class Timing:
    """One plan of one network."""

    #: ``row.planning_s`` is by the clock.
    row: Row
    #: CPU seconds: all, and those of reading the symbol (a bind without allocation).
    cpu_s: float = 0.0
    reading_s: float = 0.0
    process_bytes: int = 0
    limit_s: float = 0.0

    @property
    def kept(self) -> bool:
        """Whether the time stays within its limit."""
        return not self.row.error and self.cpu_s <= self.limit_s

    def to_dict(self) -> Dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "row": self.row.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Timing":
        """Inverse of :meth:`to_dict`."""
        return cls(**{**data, "row": Row.from_dict(data["row"])})


def failed(name: str, budget: str, error: str) -> Timing:
    """The row of a network that could not be planned."""
    return Timing(Row(name, 0, "auto:exact", "total " + budget, error=error),
                  limit_s=TASKS[name].limit_s * BUDGETS[budget])


def time_one(name: str, budget: str) -> Timing:
    """Plan one network of ``TASKS`` in this process."""
    import resource
    import time

    from memonger.mx.calls.binding import Binding
    from memonger.mx.calls.opening import open_network
    from memonger.mx.calls.plan import plan
    from memonger.zoo import nets
    task = TASKS[name]
    net = nets.build("dmlc_resnet50", blocks=task.blocks)
    try:
        started_s, started_cpu_s = time.perf_counter(), time.process_time()
        found = plan(net.symbol, budget, shapes=net.shapes, costs="reference")
        cpu_s = time.process_time() - started_cpu_s
        row = Row(name, net.batch, "auto:exact", "total " + budget,
                  found.baseline_pool_bytes, found.baseline_total_bytes, found.pool_bytes,
                  found.total_bytes, found.overhead, found.bound, time.perf_counter() - started_s,
                  found.status.value, found.costs, found.graph.num_forward)
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        started_cpu_s = time.process_time()
        open_network(net.symbol, Binding(net.shapes), "reference")
        return Timing(row, cpu_s, time.process_time() - started_cpu_s, peak_bytes,
                      task.limit_s * BUDGETS[budget])
    except MemongerError as error:
        return failed(name, budget, str(error).splitlines()[0])


def run(names: Sequence[str] = (), budgets: Sequence[str] = tuple(BUDGETS),
        progress: Optional[Callable[[str], None]] = None) -> List[Timing]:
    """Plan networks one after the other, each in a new process."""
    rows = []
    for name in names or TASKS:
        for budget in budgets:
            if progress:
                progress("%s at %s" % (name, budget))
            try:
                rows.append(Timing.from_dict(
                    ask_module("benchmarks.mxnet.scaling", [name, budget])))
            except MemongerError as error:
                rows.append(failed(name, budget, str(error)))
    return rows


def render(timings: Sequence[Timing]) -> str:
    """The table as text."""
    lines = [["network", "forward ops", "budget", "reading", "planning in all", "limit",
              "by the clock", "memory", "overhead", "bound", "status"]]
    for timing in timings:
        row, limit = timing.row, "%g s" % timing.limit_s
        if row.error:
            lines.append([row.network, "", row.target.split()[-1], "", "", limit, "", "", "", "",
                          row.error])
            continue
        lines.append([row.network, str(row.ops), row.target.split()[-1],
                      "%.1f s" % timing.reading_s, "%.1f s" % timing.cpu_s, limit,
                      "%.1f s" % row.planning_s, "%d MB" % (timing.process_bytes / 1e6),
                      format_extra(row.overhead), format_extra(row.bound), row.status])
    return table(lines, "<>>>>>>>>><")


def main(names: Sequence[str], as_json: bool = False) -> int:
    """Print the table; 1 when a limit is not kept."""
    unknown = [name for name in names if name not in TASKS]
    if unknown:
        raise InputError("no network %r to time; there are %s"
                         % (unknown[0], ", ".join(TASKS)))
    show = (lambda name: print("planning %s" % name, file=sys.stderr)) \
        if sys.stderr.isatty() else None
    rows = run(names, progress=show)
    print(json.dumps([row.to_dict() for row in rows], indent=2) if as_json else render(rows))
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    print(json.dumps(time_one(*json.load(sys.stdin)).to_dict()))
