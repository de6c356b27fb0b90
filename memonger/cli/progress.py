"""One line on a terminal that shows how far the work is; nothing anywhere else."""
from __future__ import annotations

import sys
from typing import IO, Callable, ContextManager, Optional

from ..plan.plan import Progress
from ..util.units import format_bytes


def describe(progress: Progress) -> str:
    """``3.2 s  searching  total 1.52 GiB  +7.1 % time  (at least +6.8 %)  45 % done``."""
    parts = ["%.1f s" % progress.elapsed_s, progress.phase]
    if progress.total_bytes is not None:
        parts.append("total " + format_bytes(progress.total_bytes))
    if progress.overhead is not None:
        parts.append("%+.1f %% time" % (100 * progress.overhead))
    if progress.bound is not None:
        parts.append("(at least %+.1f %%)" % (100 * progress.bound))
    if progress.fraction is not None:
        parts.append("%.0f %% done" % (100 * progress.fraction))
    return "  ".join(parts)


class ProgressLine(ContextManager["ProgressLine"]):
    """A callback for ``progress=`` that rewrites one line of standard error.

    The line is erased at the end. When standard error is no terminal, nothing is written.
    """

    def __init__(self, stream: Optional[IO[str]] = None):
        self._stream = stream if stream is not None else sys.stderr
        self._alive = self._stream.isatty()
        self._length = 0

    @property
    def callback(self) -> Optional[Callable[[Progress], None]]:
        """Self, or None where nobody watches, so that no time is spent on reports."""
        return self if self._alive else None

    def __call__(self, progress: Progress) -> None:
        if self._alive:
            self._write(describe(progress)[:118])

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        if self._length:
            self._write("")
            self._stream.write("\r")
            self._stream.flush()

    def _write(self, text: str) -> None:
        self._stream.write("\r" + text.ljust(self._length))
        self._stream.flush()
        self._length = len(text)
