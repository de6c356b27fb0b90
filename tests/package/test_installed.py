"""The tests run on the package that was asked for, and the interpreter is chosen with care."""
from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import memonger

ROOT = Path(__file__).resolve().parents[2]
FIND_PYTHON = ROOT / "tools" / "find_python.sh"


@pytest.mark.skipif("MEMONGER_TEST_INSTALLED" not in os.environ,
                    reason="only `make test` promises an installed package")
def test_make_test_tests_the_installed_package():
    assert ROOT not in Path(memonger.__file__).resolve().parents or \
        "site-packages" in memonger.__file__
    native = Path(memonger.__file__).parent / "_native"
    assert {path.name for path in native.glob("*.so")} == {
        "libmemonger_core.so", "libmemonger_mxnet.so"}


def fake_python(folder: Path, name: str, body: str) -> Path:
    program = folder / name
    program.write_text("#!/bin/sh\n" + body + "\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    return program


def find_python(*arguments: str, path: str = "") -> "subprocess.CompletedProcess[str]":
    environment = dict(os.environ, PATH=path or os.environ["PATH"])
    return subprocess.run(["/bin/sh", str(FIND_PYTHON), *arguments], env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)


def test_the_running_interpreter_is_fit():
    done = find_python(sys.executable)
    assert (done.returncode, done.stdout.strip()) == (0, sys.executable)


@pytest.mark.parametrize("verdict", [
    "it is Python 3.12, and MXNet 1.9.1 runs on 3.8 to 3.11; install python3.11",
    "it can make no virtual environment; on Debian: apt install python3-venv",
])
def test_an_unfit_interpreter_is_refused_with_advice(tmp_path, verdict):
    # Stands for an interpreter whose answer to the examination is this verdict.
    program = fake_python(tmp_path, "python3.99", "cat >/dev/null; echo '%s'" % verdict)
    done = find_python(str(program))
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == "error: cannot use PYTHON=%s: %s\n" % (program, verdict)


def test_an_interpreter_that_does_not_run_is_refused(tmp_path):
    done = find_python(str(tmp_path / "missing"))
    assert done.returncode == 1 and "it does not run" in done.stderr


def test_the_first_fit_interpreter_is_chosen(tmp_path):
    fake_python(tmp_path, "python3", "cat >/dev/null; echo 'it is Python 3.13'")
    for name in ("python3.11", "python3.10"):
        fake_python(tmp_path, name, "exit 127")
    fake_python(tmp_path, "python3.9", "cat >/dev/null; echo ok")
    done = find_python(path="%s:/usr/bin:/bin" % tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "python3.9")
