"""``python -m memonger.bench.kernels``: exit code 0, or 1 (wrong), 2 (slow), 3 (no device)."""
from __future__ import annotations

import argparse
import datetime
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, List, Optional, Sequence

from ...util.errors import MemongerError
from ...util.files import write_whole
from .cases import EDGES, POOLINGS, all_cases, random_counts, random_poolings
from .check import check
from .devices import Device, Emulated, Gpu
from .nvrtc import Nvrtc
from .report import Report
from .sources import BITS, source_folder
from .timing import rows

OK, WRONG, SLOW, NO_DEVICE = range(4)


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    result = argparse.ArgumentParser(
        prog="memonger.bench.kernels", description="Check and time memonger's GPU kernels; "
        "needs NumPy, a driver and NVRTC. Without a device they are checked on the CPU.")
    add = result.add_argument
    add("--check", action="store_true", help="compare every kernel with NumPy (the default)")
    add("--time", action="store_true", help="time every kernel beside a copy, and PyTorch")
    add("--small", action="store_true", help="few sizes: for sanitizers")
    add("--gpu", action="store_true", help="exit with 3 where there is no device")
    add("--emulate", action="store_true", help="on the CPU even where there is a device")
    add("--sanitize", action="store_true", help="run under compute-sanitizer as well")
    add("--floor", type=float, default=0.85, help="share of a copy's speed that is enough")
    add("--runs", type=int, default=50, help="runs that a time is the median of")
    add("--seconds", type=float, default=240.0, help="start nothing new after this")
    add("--json", type=Path, help="write the report as JSON")
    add("--markdown", type=Path, help="write the report as Markdown")
    add("--compile-only", metavar="SM", type=_architecture,
        help="compile for sm_80, say, into --cubins")
    add("--cubins", type=Path, help="a folder of machine code, in place of NVRTC")
    return result


def _architecture(text: str) -> int:
    number = text[3:] if text.startswith("sm_") else text
    if not number.isdigit():
        raise argparse.ArgumentTypeError("write sm_80, not %r" % text)
    return int(number)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns the exit code."""
    options = parser().parse_args(arguments)
    options.check = options.check or not options.time
    try:
        if options.compile_only:
            return _compile(options.cubins or Path("."), options.compile_only)
        devices = _devices(options)
    except MemongerError as error:
        print("error: %s" % error, file=sys.stderr)
        return NO_DEVICE
    report = Report(devices[0].name, datetime.date.today().isoformat(), _commit(),
                    floor=options.floor)
    print(report.device)
    code = _run(report, devices, options)
    if options.sanitize and code == OK:
        code = _sanitize()
    return code


def _devices(options: argparse.Namespace) -> List[Device]:
    """What to run on, first that which the report is about."""
    both: List[Device] = [Emulated(), Emulated(backwards=True)]
    if options.emulate:
        return both
    compiled: Optional[Callable[[str, int, int], bytes]] = None
    if options.cubins:
        compiled = lambda file, bits, sm: _cubin(options.cubins, file, bits, sm).read_bytes()
    try:
        gpu = Gpu(compiled)
    except MemongerError as error:
        if options.gpu:
            raise
        print("no GPU here (%s)" % error)
        return both
    return [gpu, *both[:1]] if shutil.which("g++") else [gpu]


def _run(report: Report, devices: Sequence[Device], options: argparse.Namespace) -> int:
    """Sections one after the other; files are written after each."""
    end_s = time.monotonic() + options.seconds

    def save() -> None:
        for path, text in ((options.json, report.to_json), (options.markdown, report.to_markdown)):
            if path:
                write_whole(str(path), text())

    if options.check:
        cases = all_cases(EDGES[:3]) if options.small else all_cases(
            EDGES + random_counts(6), poolings=[*POOLINGS, *random_poolings(20)])
        report.launches, report.wrong = check(devices, cases)
        save()
        print("%d launches checked, %d wrong" % (report.launches, len(report.wrong)))
        for text in report.wrong[:20]:
            print("  " + text)
    gpu = devices[0]
    if options.time and not isinstance(gpu, Gpu):
        print("nothing is timed without a GPU")
    elif options.time and isinstance(gpu, Gpu):
        for row in rows(gpu, options.runs):
            report.rows.append(row)
            if time.monotonic() > end_s:
                print("stopped after %g s" % options.seconds)
                break
        save()
        print(report.to_markdown())
    if report.wrong:
        return WRONG
    for row in report.slow():
        print("slow: %s %s, %.0f %% of a copy" % (row.kernel, row.dtype, 100 * row.share))
    return SLOW if report.slow() else OK


def _cubin(folder: Path, file: str, bits: int, architecture: int) -> Path:
    return folder / ("%s-%d-sm%d.cubin" % (file, bits, architecture))


def _compile(folder: Path, architecture: int) -> int:
    nvrtc = Nvrtc()
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted(source_folder().glob("*.cu")):
        for bits in BITS.values():
            path = _cubin(folder, source.name, bits, architecture)
            path.write_bytes(nvrtc.compile(source.name, bits, architecture))
            print(path)
    return OK


def _sanitize() -> int:
    """The small check under compute-sanitizer, which sees races and stray accesses."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(tool):
        print("error: no compute-sanitizer; it comes with the CUDA toolkit", file=sys.stderr)
        return NO_DEVICE
    for kind in ("memcheck", "racecheck"):
        done = subprocess.run([tool, "--tool", kind, "--error-exitcode", "1", sys.executable, "-m",
                               "memonger.bench.kernels", "--check", "--small", "--gpu"])
        if done.returncode:
            return WRONG
    return OK


def _commit() -> str:
    done = subprocess.run(["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          universal_newlines=True) if shutil.which("git") else None
    return done.stdout.strip() if done and not done.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
