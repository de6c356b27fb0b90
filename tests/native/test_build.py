"""plugins/build.py: which compilers it takes, and one clear error for everything that can fail."""
from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Stands for a compiler: says what it is, writes what it is asked to write.
COMPILER = """#!/bin/sh
case "$*" in
  *-dM*) echo "#define __GNUC__ %(version)s"; echo "#define __GNUC_MINOR__ 3"; exit 0;;
esac
all=$*
while [ $# -gt 0 ]; do
  if [ "$1" = -o ]; then out=$2; fi
  if [ "$1" = -c ]; then source=$2; fi
  shift
done
%(work)s
"""


@pytest.fixture
def build(monkeypatch):
    spec = importlib.util.spec_from_file_location("memonger_build", str(ROOT / "plugins/build.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delenv("CXX", raising=False)
    return module


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    def make(work='echo made > "$out"', version="12"):
        path = tmp_path / "bin" / "g++-like"
        path.parent.mkdir(exist_ok=True)
        path.write_text(COMPILER % {"work": work, "version": version})
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv("CXX", str(path))
        return path
    return make


def refusal(build, tmp_path, capsys) -> str:
    """The one error that the command prints; nothing half made is left."""
    out = tmp_path / "out"
    whole = build.build
    build.build = lambda *_, **__: whole(out, tmp_path / "cache", jobs=1)
    assert build.main(["--out", str(out)]) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and ("\n" + printed.err).count("\nerror: ") == 1, printed.err
    assert "Traceback" not in printed.err
    left = [str(p) for p in tmp_path.rglob("*") if p.suffix in (".part", ".so")]
    assert left == []
    return printed.err


@pytest.mark.parametrize("compiler_is, words", [
    ("", "no C++ compiler; on Debian: apt install g++"),
    ("no-such-compiler -m64", "CXX=no-such-compiler -m64 is not on the PATH"),
    ("false", "false does not work")])
def test_no_compiler(build, tmp_path, capsys, monkeypatch, compiler_is, words) -> None:
    if compiler_is:
        monkeypatch.setenv("CXX", compiler_is)
    else:
        monkeypatch.setenv("PATH", str(tmp_path))
    assert words in refusal(build, tmp_path, capsys)


@pytest.mark.parametrize("how, words", [
    ({"version": "4"}, ["too old for C++14"]),
    ({"work": 'case "$source" in */problem.cc) echo "problem.cc:1: error: no such thing"; exit 1;; '
              'esac; echo made > "$out"'},
     ["compiling problem.cc with", "g++ 12.3", "problem.cc:1: error: no such thing"]),
    ({"work": 'if [ -z "$source" ]; then echo "undefined reference to f"; exit 1; fi; '
              'echo made > "$out"'},
     ["linking libmemonger_core.so failed", "undefined reference to f"]),
    ({"work": "echo made > /dev/full || exit 1"}, ["compiling"])], ids=str)
def test_errors_of_the_compiler_are_passed_on(build, tmp_path, capsys, compiler, how,
                                              words) -> None:
    compiler(**how)
    text = refusal(build, tmp_path, capsys)
    for word in words:
        assert word in text


def test_no_mxnet(build, tmp_path, capsys, compiler, monkeypatch) -> None:
    compiler()
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(build.sysconfig, "get_path", lambda name: str(tmp_path))
    made = build.build(tmp_path / "core", tmp_path / "cache", names=[build.CORE])
    assert made == list((tmp_path / "core").iterdir()) == [tmp_path / "core" / build.CORE]
    made[0].unlink()
    assert "no MXNet is installed here: pip install mxnet==1.9.1" in refusal(build, tmp_path,
                                                                             capsys)


def test_the_mxnet_of_the_interpreter_is_found_from_a_build_environment(build, monkeypatch):
    expected = build.find_mxnet()
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(build.sysconfig, "get_path", lambda name: str(expected.parent))
    assert build.find_mxnet() == expected


def test_another_mxnet(build, tmp_path, capsys, compiler, monkeypatch) -> None:
    compiler()
    for name in ("include/nnvm/graph.h", "libmxnet.so", "libinfo.py"):
        (tmp_path / "mxnet" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mxnet" / name).write_text('__version__ = "1.8.0"')
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(build.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(build.BuildError, match="made for MXNet 1.9.1, and .* is 1.8.0"):
        build.find_mxnet()


def test_mxnet_without_headers(build, tmp_path, capsys, compiler, monkeypatch) -> None:
    compiler()

    class Found:
        origin = str(tmp_path / "mxnet" / "__init__.py")
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: Found)
    assert "has no include/nnvm or no libmxnet.so" in refusal(build, tmp_path, capsys)


@pytest.mark.parametrize("call", ["replace", "seal", "mkdir", "temporary"])
def test_no_room_on_the_disk(build, tmp_path, capsys, compiler, monkeypatch, call) -> None:
    compiler()

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    owner, name = {"replace": (build.os, "replace"), "seal": (build, "seal"),
                   "mkdir": (Path, "mkdir"),
                   "temporary": (build.tempfile, "TemporaryDirectory")}[call]
    monkeypatch.setattr(owner, name, full)
    text = refusal(build, tmp_path, capsys)
    assert "No space left on device" in text and "cannot" in text


def test_only_what_changed_is_compiled_again(build, tmp_path, compiler, monkeypatch) -> None:
    compiler('echo "$source" >> "%s/calls"; echo made > "$out"' % tmp_path)
    part = tmp_path / "part.h"
    monkeypatch.setattr(build, "SHIM", tmp_path / "shim.h")
    build.SHIM.write_text('#include "part.h"\n')
    compiled = []
    for text in ("// one\n", "// one\n", "// two\n"):  # a part of the shim, which all include
        part.write_text(text)
        made = build.build(tmp_path / "out", tmp_path / "cache", jobs=1)
        assert [p.name for p in made] == ["libmemonger_core.so", "libmemonger_mxnet.so"]
        compiled.append((tmp_path / "calls").read_text().count(".cc"))
    assert compiled[2] == 2 * compiled[1] == 2 * compiled[0] > 0


def test_headers_are_precompiled_where_many_sources_need_them(build, tmp_path, compiler) -> None:
    calls = tmp_path / "calls"
    compiler('echo "$all" >> "%s"; echo made > "$out"' % calls)
    build.build(tmp_path / "out", tmp_path / "cache", jobs=1)
    lines = calls.read_text().splitlines()
    assert sum("c++-header" in line for line in lines) == 1
    sources = [line for line in lines if "plugins/ops/" in line and line.count(".cc") == 1]
    assert sources and all("/headers.h -c" in line for line in sources)
    assert not any("-include" in line for line in lines if "memonger_core" in line)
    next((tmp_path / "cache").glob("masks-*.o")).unlink()
    calls.unlink()
    build.build(tmp_path / "out", tmp_path / "cache", jobs=1)
    again = [line for line in calls.read_text().splitlines() if " -c " in line]
    assert len(again) == 1 and "/abi_gcc48.h -c" in again[0] and "masks.cc" in again[0]


def test_a_compiler_that_cannot_precompile(build, tmp_path, compiler) -> None:
    calls = tmp_path / "calls"
    compiler('case "$all" in *c++-header*) exit 1;; esac; echo "$all" >> "%s"; echo made > "$out"'
             % calls)
    assert len(build.build(tmp_path / "out", tmp_path / "cache", jobs=2)) == 2
    assert "/headers.h" not in calls.read_text() and "/abi_gcc48.h -c" in calls.read_text()


def test_the_seal_is_that_of_the_file(build, tmp_path) -> None:
    import hashlib
    library = tmp_path / "lib.so"
    library.write_bytes(b"code")
    build.seal(library)
    assert library.read_bytes() == \
        b"code" + build.SEAL + hashlib.sha256(b"code").hexdigest().encode()


# ---------------------------------------------------------------------- real compilers
def compilers():
    return [name for name in ("g++", "clang++") if shutil.which(name)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["g++", "clang++"])
def test_every_compiler_here_builds_what_passes_the_quick_tests(name, tmp_path) -> None:
    if name not in compilers():
        pytest.skip("no %s here" % name)
    environment = dict(os.environ, CXX=name, MEMONGER_NATIVE_DIR=str(tmp_path))
    environment.pop("MEMONGER_TEST_INSTALLED", None)  # `python -m pytest` imports the sources
    cache = ROOT / "build" / ("native-" + name.strip("+"))
    code = ("import sys; sys.path.insert(0, %r); import build; from pathlib import Path; "
            "build.build(Path(%r), Path(%r))" % (str(ROOT / "plugins"), str(tmp_path), str(cache)))
    for command in ([sys.executable, "-c", code],
                    [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
                     "tests/native/test_loading.py", "tests/native/test_recompute.py",
                     "tests/native/test_executors.py", "tests/native/test_cached_op.py",
                     "tests/ops/test_exact.py", "tests/solve/test_simulator.py"]):
        done = subprocess.run(command, cwd=str(ROOT), env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True)
        assert done.returncode == 0, done.stdout[-4000:]


def test_what_a_killed_build_left_is_removed_by_the_next(build, compiler, tmp_path):
    """A build that runs at the same time keeps its folder."""
    cache, out = tmp_path / "cache", tmp_path / "out"
    compiler('touch "%s/compiles-$PPID"; sleep 600' % tmp_path)
    code = "import runpy, sys; m = runpy.run_path(%r); m['build'](%r, %r, names=('%s',), jobs=1)"
    command = [sys.executable, "-c", code % (
        str(ROOT / "plugins" / "build.py"), str(out), str(cache), build.CORE)]
    running = [subprocess.Popen(command, start_new_session=True) for _ in range(2)]
    try:
        deadline_s = time.monotonic() + 50
        while len(list(tmp_path.glob("compiles-*"))) < 2:  # neither meets the compiler below
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        os.killpg(running[0].pid, signal.SIGKILL)
        running[0].wait()
        (out / ("tmp%d-link" % running[0].pid)).mkdir()
        compiler()
        build.build(out, cache, names=(build.CORE,), jobs=1)
        assert [path.name.split("-")[0] for path in cache.glob("tmp*")] == \
            ["tmp%d" % running[1].pid]
        assert not list(out.glob("tmp*"))
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
