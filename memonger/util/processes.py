"""Processes that run the memonger of this one."""
from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, Callable, List, Mapping, Optional

from .errors import MemongerError

#: The folder that holds the package.
_ROOT = str(Path(__file__).resolve().parents[2])


def ask_module(module: str, request: Any,
               environment: Optional[Mapping[str, str]] = None,
               timeout_s: Optional[float] = None) -> Any:
    """The answer of a module of this package, run in a process of its own, to a request.

    Both are JSON: the request on standard input, the answer in the last line of the output. The
    process imports what this one does: the same memonger, and the same MXNet.

    ``module``: its full name, as after ``python -m``.
    ``environment``: variables to set, besides those of this process.
    Raises MemongerError, with the last words of the process, if it fails or takes longer.
    """
    start = "import runpy, sys; sys.path[:] = %r; runpy.run_module(%r, None, '__main__', True)"
    try:
        child = subprocess.run(
            [sys.executable, "-c", start % (_import_path(), module)], input=json.dumps(request),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
            env={**os.environ, **(environment or {})}, timeout=timeout_s)
    except subprocess.TimeoutExpired as late:
        raise MemongerError("it took more than %g s" % late.timeout) from None
    lines, said = child.stdout.strip().splitlines(), child.stderr.strip().splitlines()
    if child.returncode or not lines:
        logging.getLogger("memonger").info("the process said:\n%s", child.stderr)
        raise MemongerError(
            "it was killed, perhaps because memory ran out" if child.returncode == -9
            else said[-1] if said else "it ended with status %d" % child.returncode)
    return json.loads(lines[-1])


def answer(run: Callable[[Any], Any], last_words: Callable[[Exception], str]) -> None:
    """The other end of :func:`ask_module`: answer the request on standard input, or end with why.

    ``run``: from the request to the answer.
    ``last_words``: from an error to the line that the asking process shows; it logs all the rest.
    """
    try:
        print(json.dumps(run(json.load(sys.stdin))))
    except Exception as error:
        traceback.print_exc()
        sys.exit(last_words(error))


def _import_path() -> List[str]:
    """Where this process imports from; memonger was found where it is, wherever we are now."""
    folders = [os.path.abspath(folder) for folder in sys.path]
    first = next((place for place, folder in enumerate(folders)
                  if (Path(folder) / "memonger").is_dir()), len(folders))
    return [*folders[:first], _ROOT, *folders[first:]]
