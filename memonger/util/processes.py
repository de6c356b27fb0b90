"""Processes that run the memonger of this one."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import List, Mapping, Optional

#: The folder that holds the package.
_ROOT = str(Path(__file__).resolve().parents[2])


def run_module(module: str, *arguments: str, stdin: Optional[str] = None,
               stderr: int = subprocess.PIPE,
               environment: Optional[Mapping[str, str]] = None
               ) -> "subprocess.CompletedProcess[str]":
    """Run a module of this package in a process of its own, and wait for it.

    It imports what this process does: the same memonger, and the same MXNet.

    Parameters
    ----------
    module : str
        Its full name, as after ``python -m``.
    stderr : int
        ``subprocess.STDOUT`` joins standard error to the output.
    environment : mapping, optional
        Variables to set, besides those of this process.
    """
    start = "import runpy, sys; sys.path[:] = %r; runpy.run_module(%r, None, '__main__', True)"
    return subprocess.run(
        [sys.executable, "-c", start % (_import_path(), module), *arguments], input=stdin,
        stdout=subprocess.PIPE, stderr=stderr, universal_newlines=True,
        env={**os.environ, **(environment or {})})


def _import_path() -> List[str]:
    """Where this process imports from; memonger was found where it is, wherever we are now."""
    folders = [os.path.abspath(folder) for folder in sys.path]
    first = next((place for place, folder in enumerate(folders)
                  if (Path(folder) / "memonger").is_dir()), len(folders))
    return [*folders[:first], _ROOT, *folders[first:]]
