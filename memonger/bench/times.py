"""``memonger bench times``: how long planning takes, from the symbol to the confirmed plan.

Each network is planned in a process of its own by ``memonger.plan`` with default arguments, so
seconds are what a user waits and memory is what the process takes at most. Building the network
and importing MXNet are not counted.
"""
from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ..report.formatting import format_extra, table
from ..util.processes import run_module
from .rows import Row


@dataclass(frozen=True)
class Task:
    """A network to plan, and what planning it may take."""

    network: str
    budget: str
    limit_s: float
    limit_bytes: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


TASKS: Dict[str, Task] = {
    "resnet50": Task("dmlc_resnet50", "50%", 2.0),
    "transformer": Task("transformer", "60%", 2.0),
    "transformer_48": Task("transformer", "60%", 10.0, options={"layers": 48}),
    "transformer_96": Task("transformer_96", "60%", 60.0, 4 * 10 ** 9),
    "lstm_200": Task("lstm_lm_200", "80%", 60.0, 4 * 10 ** 9, {"dropout": 0}),
    "lstm_500": Task("lstm_lm_500", "80%", 60.0, 4 * 10 ** 9, {"dropout": 0}),
}


@dataclass(frozen=True)
class Timing:
    """One plan of one network."""

    #: ``row.planning_s`` is all of it, from the symbol to the confirmed plan.
    row: Row
    #: Reading the symbol (a bind without allocation and its prices), as a part of that.
    reading_s: float = 0.0
    process_bytes: int = 0
    limit_s: float = 0.0
    limit_bytes: int = 0

    @property
    def kept(self) -> bool:
        """Whether time and memory stay within their limits."""
        return not self.row.error and self.row.planning_s <= self.limit_s and \
            self.process_bytes <= (self.limit_bytes or self.process_bytes)

    def to_dict(self) -> Dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "row": self.row.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Timing":
        """Inverse of :meth:`to_dict`."""
        return cls(**{**data, "row": Row.from_dict(data["row"])})


def failed(name: str, error: str) -> Timing:
    """What is left of a network that could not be planned."""
    task = TASKS[name]
    return Timing(Row(name, 0, "auto:exact", "total " + task.budget, error=error),
                  limit_s=task.limit_s, limit_bytes=task.limit_bytes)


def time_one(name: str) -> Timing:
    """Plan one network of ``TASKS`` in this process."""
    import resource
    import time

    from ..api.calls import plan
    from ..api.network import open_session
    from ..api.requests import Binding
    from ..util.errors import MemongerError
    from ..zoo import nets
    task = TASKS[name]
    net = nets.build(task.network, **task.options)
    try:
        started_s = time.perf_counter()
        found = plan(net.symbol, task.budget, shapes=net.shapes)
        total_s = time.perf_counter() - started_s
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        started_s = time.perf_counter()
        open_session(net.symbol, Binding(net.shapes), "reference")
        row = Row(name, net.batch, "auto:exact", "total " + task.budget,
                  found.baseline_pool_bytes, found.baseline_total_bytes, found.pool_bytes,
                  found.total_bytes, found.overhead, found.bound, total_s, found.status.value,
                  found.costs, len(found.graph.ops))
        return Timing(row, time.perf_counter() - started_s, peak_bytes, task.limit_s,
                      task.limit_bytes)
    except MemongerError as error:
        return failed(name, str(error))


def run(names: Sequence[str] = (),
        progress: Optional[Callable[[str], None]] = None) -> List[Timing]:
    """Plan networks one after the other, each in a new process."""
    rows = []
    for name in names or TASKS:
        if progress:
            progress(name)
        done = run_module("memonger.bench.times", name,
                          environment={"MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0"})
        if done.returncode:
            rows.append(failed(name, (done.stderr.strip().splitlines() or ["it died"])[-1]))
        else:
            rows.append(Timing.from_dict(json.loads(done.stdout.splitlines()[-1])))
    return rows


def render(timings: Sequence[Timing]) -> str:
    """The table as text."""
    lines = [["network", "ops", "budget", "reading", "planning in all", "limit", "memory",
              "overhead", "bound", "status"]]
    for timing in timings:
        row = timing.row
        lines.append([row.network, str(row.ops), TASKS[row.network].budget,
                      "%.1f s" % timing.reading_s, "%.1f s" % row.planning_s,
                      "%g s" % timing.limit_s, "%d MB" % (timing.process_bytes / 1e6),
                      format_extra(row.overhead), format_extra(row.bound),
                      row.error or row.status])
    return table(lines, "<>>>>>>>><")


def main(names: Sequence[str], as_json: bool = False) -> int:
    """Print the table; 1 when a limit is not kept."""
    from ..util.errors import InputError
    unknown = [name for name in names if name not in TASKS]
    if unknown:
        raise InputError("no network %r to time; there are %s"
                         % (unknown[0], ", ".join(TASKS)))
    show = (lambda name: print("planning %s" % name, file=sys.stderr)) \
        if sys.stderr.isatty() else None
    rows = run(names, show)
    print(json.dumps([row.to_dict() for row in rows], indent=2) if as_json else render(rows))
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    print(json.dumps(time_one(sys.argv[1]).to_dict()))
