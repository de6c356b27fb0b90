"""Processes of their own: Python, and forks of one that has imported MXNet already."""
from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator, List, Mapping

import memonger

#: Forks for each line of its input, and answers with the child's exit status.
SERVER = """
import json, os, resource, sys
import mxnet
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if not child:
        for number, path in ((1, job["out"]), (2, job["error"])):
            os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
        os.chdir(job["folder"])
        os.environ.update(job["environment"])
        if job["file_bytes"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (job["file_bytes"],) * 2)
        sys.argv = ["-c"]
        exec(compile(job["code"], "<code>", "exec"), {"__name__": "__main__"})
        raise SystemExit(0)
    status = os.waitpid(child, 0)[1]
    print(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)
"""


def paths(environment: Mapping[str, str]) -> str:
    """PYTHONPATH for a process that imports the same memonger as we do, and the tests' helpers."""
    folders = [str(Path(memonger.__file__).resolve().parents[1]), str(Path(__file__).parent),
               environment.get("PYTHONPATH")]
    return os.pathsep.join(filter(None, folders))


def python(*arguments: str, folder: str = os.sep,
           **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run Python with these arguments; what it prints and its errors are one text."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=str(folder), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, universal_newlines=True,
        env={**os.environ, "PYTHONPATH": paths(os.environ), **environment})


class Forks:
    """What :func:`forks` gives."""

    def __init__(self, server: "subprocess.Popen[str]", folder: str) -> None:
        self._server, self._folder = server, folder

    def run(self, code: str, folder: str = os.sep, file_bytes: int = 0,
            **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run ``code`` in ``folder``; no file may grow beyond ``file_bytes``, if that is given."""
        paths = [Path(self._folder, name) for name in ("out", "error")]
        for path in paths:
            path.write_bytes(b"")
        job = {"code": code, "folder": str(folder), "file_bytes": file_bytes,
               "environment": environment, "out": str(paths[0]), "error": str(paths[1])}
        assert self._server.stdin and self._server.stdout
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        status = int(self._server.stdout.readline())
        out, error = (path.read_text(encoding="utf-8", errors="replace") for path in paths)
        return subprocess.CompletedProcess(code, status, out, error)

    def command(self, words: List[str], folder: str, file_bytes: int = 0,
                **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run ``memonger`` with these words."""
        code = ("import sys\nfrom memonger.cli import main\n"
                "sys.argv[:] = ['memonger', *%r]\nsys.exit(main())" % (list(words),))
        return self.run(code, folder, file_bytes, **environment)


@contextlib.contextmanager
def forks(environment: Mapping[str, str]) -> Iterator[Forks]:
    """A process that has imported MXNet in this environment and sees the same memonger as we do."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], cwd=os.sep, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        universal_newlines=True,
        env={**environment, "PYTHONPATH": paths(environment), "PYTHONIOENCODING": "utf-8"})
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield Forks(server, folder)
        finally:
            server.communicate(timeout=60)
