"""``python -m benchmarks.kernels``: exit code 0, or 1 (wrong), 2 (slow), 3 (no device)."""
from __future__ import annotations

import argparse
import datetime
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List, Optional, Sequence

from memonger.report.formatting import markdown
from memonger.util.errors import MemongerError
from memonger.util.files import write_whole

from .cases import EDGES, POOLINGS, all_cases, random_counts, random_poolings
from .check import check
from .devices import Gpu
from .timing import MEGABYTE, Row, rows

OK, WRONG, SLOW, NO_DEVICE = range(4)


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    result = argparse.ArgumentParser(
        prog="benchmarks.kernels", description="Check and time memonger's GPU kernels; "
        "needs the core library, NumPy, a driver and NVRTC.")
    add = result.add_argument
    add("--check", action="store_true", help="compare every kernel with NumPy (the default)")
    add("--time", action="store_true", help="time every kernel beside a copy")
    add("--small", action="store_true", help="few sizes: for sanitizers")
    add("--runs", type=int, default=50, help="runs that a time is the median of")
    add("--markdown", type=Path, help="write the report as Markdown")
    return result


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        gpu = Gpu()
    except MemongerError as error:
        print("error: %s" % error, file=sys.stderr)
        return NO_DEVICE
    try:
        return _measured(gpu, options)
    except MemongerError as error:
        print("error: %s" % error, file=sys.stderr)
        return WRONG


def _measured(gpu: Gpu, options: argparse.Namespace) -> int:
    """Check and time on a device; the exit code."""
    parts = ["# GPU kernels: checked and timed", "%s, %s%s. Made by `python -m "
             "benchmarks.kernels --check --time`."
             % (gpu.name, datetime.date.today().isoformat(), _commit())]
    print(parts[1])
    wrong: List[str] = []
    if options.check or not options.time:
        launches, wrong = check([gpu], all_cases(EDGES[:3]) if options.small else all_cases(
            EDGES + random_counts(6), poolings=[*POOLINGS, *random_poolings(20)]))
        parts += ["%d launches checked: %s." % (launches, "%d wrong" % len(wrong) if wrong
                                                else "all right"),
                  *("- " + text for text in wrong[:20])]
        print("\n".join(parts[2:]))
    found: List[Row] = []
    if options.time:
        found = list(rows(gpu, options.runs))
        parts.append(table(found))
        print(parts[-1])
    if options.markdown:
        write_whole(str(options.markdown), "\n\n".join(parts) + "\n")
    slow = [row for row in found if row.slow]
    for row in slow:
        print("slow: %s %s, %.0f %% of a copy" % (row.kernel, row.dtype, 100 * row.share))
    return WRONG if wrong else SLOW if slow else OK


def table(found: Sequence[Row]) -> str:
    """Shares of a copy's speed as Markdown, and that speed: a row for each kernel."""
    columns = list(dict.fromkeys((row.dtype, row.size_bytes) for row in found if row.dtype))
    copies = {row.size_bytes: "%.0f GB/s" % (row.copy_bytes_per_s / 1e9) for row in found}
    shares = {(row.kernel, row.dtype, row.size_bytes): "%.0f %%" % (100 * row.share)
              for row in found}
    return markdown(
        ("kernel", *("%s, %d MB" % (dtype, size // MEGABYTE) for dtype, size in columns)),
        "<" + ">" * len(columns),
        [("copy", *(copies[size] for _, size in columns)),
         *((kernel, *(shares.get((kernel, *column), "") for column in columns))
           for kernel in dict.fromkeys(row.kernel for row in found if row.dtype))])


def _commit() -> str:
    done = subprocess.run(["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          universal_newlines=True) if shutil.which("git") else None
    return ", commit " + done.stdout.strip() if done and not done.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
