"""Run the plugin's tests on a build with address and undefined-behaviour sanitizers.

    python plugins/sanitize.py [pytest arguments; default: tests/native]

Python and libmxnet.so are not instrumented, so leaks are not looked for, and of the reports only
those count that name a file of ours.
"""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import build

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    out = ROOT / "build" / "sanitized"
    try:
        compiler = build.examine_compiler()
        build.build(out, ROOT / "build" / "native-sanitized", sanitize=True)
    except build.BuildError as error:
        print("error: %s" % error, file=sys.stderr)
        return 1
    if compiler.family != "g++":
        print("error: set CXX to g++; its sanitizers can be preloaded", file=sys.stderr)
        return 1
    runtimes = [subprocess.check_output([*compiler.command, "-print-file-name=" + name],
                                        universal_newlines=True).strip()
                for name in ("libasan.so", "libubsan.so")]
    logs = out / "report"
    for old in out.glob("report*"):
        old.unlink()
    environment = dict(
        os.environ, LD_PRELOAD=" ".join(runtimes), MEMONGER_NATIVE_DIR=str(out),
        ASAN_OPTIONS="detect_leaks=0:halt_on_error=0:log_path=%s" % logs,
        UBSAN_OPTIONS="print_stacktrace=1:log_path=%s" % logs)
    command = [sys.executable, "-m", "pytest", *(sys.argv[1:] or ["tests/native", "-q"])]
    status = subprocess.call(command, cwd=str(ROOT), env=environment)
    ours = []
    for log in sorted(out.glob("report*")):
        text = log.read_text(errors="replace")
        ours += [line for line in text.splitlines()
                 if re.search(r"plugins/(core|mxnet|ops)/\S+:\d+", line)]
    print("%d reports, %d lines name our files" % (len(list(out.glob("report*"))), len(ours)))
    print("\n".join(ours[:40]))
    return 1 if status or ours else 0


if __name__ == "__main__":
    sys.exit(main())
