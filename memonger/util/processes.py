"""Processes that run the memonger of this one."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Mapping, Optional

#: The folder that holds the package.
_ROOT = str(Path(__file__).resolve().parents[2])


def run_module(module: str, *arguments: str, stdin: Optional[str] = None,
               stderr: int = subprocess.PIPE,
               environment: Optional[Mapping[str, str]] = None
               ) -> "subprocess.CompletedProcess[str]":
    """Run a module of this package in a process of its own, and wait for it.

    A child that started elsewhere might find another memonger.

    Parameters
    ----------
    module : str
        Its full name, as after ``python -m``.
    stderr : int
        ``subprocess.STDOUT`` joins standard error to the output.
    environment : mapping, optional
        Variables to set, besides those of this process.
    """
    path = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], input=stdin, stdout=subprocess.PIPE,
        stderr=stderr, universal_newlines=True, cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": path, **(environment or {})})
