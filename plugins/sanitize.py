"""Run the plugin's tests on a build with address and undefined-behaviour sanitizers.

    python plugins/sanitize.py [pytest arguments]

Without arguments: the default tests of everything native, operators included (``TESTS``), in
about five minutes on two cores, and never more than ``TIME_LIMIT_S``. Left out are the tests that
are marked slow, and those that watch the size of the process: freed memory stays in the
sanitizer's quarantine.

Python and libmxnet.so are not instrumented, so leaks are not looked for, and of the reports only
those count that name a file of ours. An error planted in a library of its own must be reported
first, so that silence means something.
"""
from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, Optional, Sequence

import build

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "sanitized"
#: Tests that run code of ``plugins``: passes, loading, engines, operators, storage, search.
TESTS = ["tests/native", "tests/ops", "tests/solve/test_simulator.py", "tests/solve/test_chain.py",
         "tests/memory/test_storage.py", "tests/memory/test_storage_exact.py",
         "-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu", "--capture=sys",
         "--ignore", "tests/native/test_endurance.py"]
TIME_LIMIT_S = 1500
OURS = re.compile(r"plugins/(core|mxnet|ops)/\S+:\d+")
#: One error for each sanitizer, and calls of them by name.
PLANTED = """
#include <cstdint>
extern "C" int32_t BeyondTheEnd(const int32_t* values, int32_t i) { return values[i]; }
extern "C" int32_t Overflow(const int32_t*, int32_t i) { return INT32_MAX - 1 + i; }
"""
CALL_PLANTED = """
import ctypes, sys
heap = ctypes.CDLL(None)
heap.malloc.restype = ctypes.c_void_p
getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])(ctypes.c_void_p(heap.malloc(8)), 2)
"""


def environment(compiler: build.Compiler, logs: Path) -> Dict[str, str]:
    """The environment in which an ordinary Python runs instrumented libraries."""
    runtimes = [subprocess.check_output([*compiler.command, "-print-file-name=" + name],
                                        universal_newlines=True).strip()
                for name in ("libasan.so", "libubsan.so")]
    return dict(os.environ, LD_PRELOAD=" ".join(runtimes), MEMONGER_NATIVE_DIR=str(OUT),
                ASAN_OPTIONS="detect_leaks=0:log_path=%s" % logs,
                UBSAN_OPTIONS="print_stacktrace=1")


def reports(logs: Path) -> List[str]:
    """All lines of all reports."""
    return [line for log in sorted(logs.parent.glob(logs.name + "*"))
            for line in log.read_text(errors="replace").splitlines()]


def sees_planted_errors(compiler: build.Compiler) -> bool:
    """Whether both sanitizers report what they should, and undefined behaviour ends a process."""
    source, library = OUT / "planted.cc", OUT / "planted.so"
    source.write_text(PLANTED)
    subprocess.check_call([*compiler.command, "-shared", "-fPIC", *build.SANITIZE, str(source),
                           "-o", str(library)])
    seen = []
    for name, report in (("BeyondTheEnd", "heap-buffer-overflow"),
                         ("Overflow", "signed integer overflow")):
        done = subprocess.run([sys.executable, "-c", CALL_PLANTED, str(library), name],
                              env=environment(compiler, OUT / "planted"),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              universal_newlines=True)
        text = done.stdout + "\n".join(reports(OUT / "planted."))
        seen.append(done.returncode != 0 and report in text)
    return all(seen)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    started_s = time.monotonic()
    try:
        compiler = build.examine_compiler()
        if compiler.family != "g++":
            raise build.BuildError("set CXX to g++; its sanitizers can be preloaded")
        OUT.mkdir(parents=True, exist_ok=True)
        for old in [*OUT.glob("report*"), *OUT.glob("planted*")]:
            old.unlink()
        if not sees_planted_errors(compiler):
            raise build.BuildError("the sanitizers do not report the errors planted for them")
        build.build(OUT, ROOT / "build" / "native-sanitized", sanitize=True)
    except build.BuildError as error:
        print("error: %s" % error, file=sys.stderr)
        return 1
    left_s = TIME_LIMIT_S - (time.monotonic() - started_s)
    command = [sys.executable, "-m", "pytest", *(arguments or TESTS)]
    errors = OUT / "report.stderr"
    with errors.open("wb") as file:
        tests = subprocess.Popen(command, cwd=str(ROOT), stderr=file,
                                 env=environment(compiler, OUT / "report"))
        try:
            status = tests.wait(left_s)
        except subprocess.TimeoutExpired:
            tests.kill()
            status = 1
            print("error: the tests took longer than %d s" % TIME_LIMIT_S, file=sys.stderr)
    ours = [line for line in reports(OUT / "report") if OURS.search(line)]
    print("%d lines of reports name our files, tests %s, %.0f s"
          % (len(ours), "failed" if status else "passed", time.monotonic() - started_s))
    print("\n".join(ours[:40]))
    return 1 if status or ours else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
