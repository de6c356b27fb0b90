"""``memonger bench times``: how long planning takes, from the symbol to the confirmed plan.

Each network is planned in a process of its own by ``memonger.plan`` with default arguments, so
seconds are what a user waits and memory is what the process takes at most. Building the network
and importing MXNet are not counted.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ..report.words import table

#: This package's folder: children run beside it, so that they import the same one.
_PACKAGE = os.path.dirname(os.path.abspath(__file__))
#: Name in the table -> network, options, budget, and the seconds and bytes it may take.
NETWORKS: Dict[str, Tuple[str, Mapping[str, Any], str, float, int]] = {
    "resnet50": ("dmlc_resnet50", {}, "50%", 2.0, 0),
    "transformer": ("transformer", {}, "60%", 2.0, 0),
    "transformer_48": ("transformer", {"layers": 48}, "60%", 10.0, 0),
    "transformer_96": ("transformer_96", {}, "60%", 60.0, 4 * 10 ** 9),
    "lstm_200": ("lstm_lm_200", {"dropout": 0}, "80%", 60.0, 4 * 10 ** 9),
    "lstm_500": ("lstm_lm_500", {"dropout": 0}, "80%", 60.0, 4 * 10 ** 9),
}


@dataclass(frozen=True)
class Timing:
    """One plan of one network; sizes are bytes."""

    name: str
    ops: int = 0
    #: Reading the symbol (a bind without allocation and its prices), as a part of ``total_s``.
    reading_s: float = 0.0
    total_s: float = 0.0
    process_bytes: int = 0
    overhead: float = 0.0
    bound: float = 0.0
    status: str = ""
    limit_s: float = 0.0
    limit_bytes: int = 0
    error: str = ""

    @property
    def kept(self) -> bool:
        """Whether time and memory stay within their limits."""
        return not self.error and self.total_s <= self.limit_s and \
            self.process_bytes <= (self.limit_bytes or self.process_bytes)


def time_one(name: str) -> Timing:
    """Plan one network of ``NETWORKS`` in this process."""
    import resource
    import time

    from .. import plan
    from ..errors import MemongerError
    from ..session import open_session
    from . import nets
    network, options, budget, limit_s, limit_bytes = NETWORKS[name]
    net = nets.build(network, **options)
    try:
        started_s = time.perf_counter()
        found = plan(net.symbol, budget, shapes=net.shapes)
        total_s = time.perf_counter() - started_s
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        started_s = time.perf_counter()
        open_session(net.symbol, net.shapes, None, "write", None, "auto", None, None, None)
        return Timing(name, len(found.graph.ops), time.perf_counter() - started_s, total_s,
                      peak_bytes, found.overhead, found.bound, found.status.value, limit_s,
                      limit_bytes)
    except MemongerError as error:
        return Timing(name, error=str(error), limit_s=limit_s, limit_bytes=limit_bytes)


def run(names: Sequence[str] = (),
        progress: Optional[Callable[[str], None]] = None) -> List[Timing]:
    """Plan networks one after the other, each in a new process."""
    rows = []
    for name in names or NETWORKS:
        if progress:
            progress(name)
        done = subprocess.run([sys.executable, "-m", __name__, name], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True,
                              cwd=os.path.dirname(os.path.dirname(_PACKAGE)),
                              env={**os.environ, "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0"})
        if done.returncode:
            rows.append(Timing(name, error=(done.stderr.strip().splitlines() or ["it died"])[-1],
                               limit_s=NETWORKS[name][3], limit_bytes=NETWORKS[name][4]))
        else:
            rows.append(Timing(**json.loads(done.stdout.splitlines()[-1])))
    return rows


def render(rows: Sequence[Timing]) -> str:
    """The table as text."""
    lines = [["network", "ops", "budget", "reading", "planning in all", "limit", "memory",
              "overhead", "bound", "status"]]
    for row in rows:
        lines.append([row.name, str(row.ops), NETWORKS[row.name][2], "%.1f s" % row.reading_s,
                      "%.1f s" % row.total_s, "%g s" % row.limit_s,
                      "%d MB" % (row.process_bytes / 1e6), "%.1f %%" % (100 * row.overhead),
                      "%.1f %%" % (100 * row.bound), row.error or row.status])
    return table(lines, "lrrrrrrrrl")


def main(names: Sequence[str], as_json: bool = False) -> int:
    """Print the table; 1 when a limit is not kept."""
    from ..errors import InputError
    unknown = [name for name in names if name not in NETWORKS]
    if unknown:
        raise InputError("no network %r to time; there are %s"
                         % (unknown[0], ", ".join(NETWORKS)))
    show = (lambda name: print("planning %s" % name, file=sys.stderr)) \
        if sys.stderr.isatty() else None
    rows = run(names, show)
    print(json.dumps([asdict(row) for row in rows], indent=2) if as_json else render(rows))
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    print(json.dumps(asdict(time_one(sys.argv[1]))))
