"""How far long work is: a bar in a terminal and a notebook, a line now and then in a pipe."""
from __future__ import annotations

import functools
import sys
import threading
import time
from dataclasses import replace
from typing import IO, Any, Callable, Iterator, Optional, Tuple, TypeVar, Union

from ..plans.plan import Progress
from ..util.units import format_bytes, format_plain

#: What ``progress=`` of a call takes: True shows a bar, None one where somebody watches a call that
#: is not over soon, False none.
Callback = Callable[[Progress], None]
Asked = Union[None, bool, Callback]
Call = TypeVar("Call", bound=Callable[..., Any])
#: Seconds between two lines in a pipe, and between two changes of a bar.
LINE_EVERY_S, BAR_EVERY_S = 10.0, 0.1
#: Seconds after which a call shows a bar that nobody asked for.
UNASKED_AFTER_S = 2.0


def describe(progress: Progress) -> str:
    """``3.2 s  searching  total 1.52 GiB  +7.1 % time  (at least +6.8 %)  45 % done``."""
    parts = ["%.1f s" % progress.elapsed_s, progress.phase]
    if progress.total_bytes is not None:
        size = format_plain if progress.own_units else format_bytes
        parts.append("total " + size(progress.total_bytes))
    if progress.overhead is not None:
        parts.append("%+.1f %% time" % (100 * progress.overhead))
    if progress.bound is not None:
        parts.append("(at least %+.1f %%)" % (100 * progress.bound))
    if progress.fraction is not None:
        parts.append("%.0f %% done" % (100 * progress.fraction))
    return "  ".join(parts)


class ProgressBar:
    """A callback for ``progress=`` that shows on standard error how far the work is.

    Bars are tqdm's and disappear at the end; where nobody watches, there is a line every ten
    seconds.
    """

    def __init__(self, stream: Optional[IO[str]] = None, after_s: float = 0.0):
        self._stream = stream if stream is not None else sys.stderr
        self._watched = watched(self._stream)
        self._shown_s = time.monotonic()
        self._bar: Any = None
        #: The latest news, and when they came.
        self._latest: Optional[Tuple[Progress, float]] = None
        #: Until it is over nothing is shown; then what is known by then, as a phase may be long.
        self._wait: Optional[threading.Timer] = \
            threading.Timer(after_s, self._begin) if after_s else None
        self._lock = threading.Lock()

    def _begin(self) -> None:
        with self._lock:
            self._wait = None
            if self._latest is not None:
                news, told_s = self._latest
                self._show(replace(
                    news, elapsed_s=news.elapsed_s + time.monotonic() - told_s))

    def __call__(self, progress: Progress) -> None:
        with self._lock:
            self._latest = progress, time.monotonic()
            if self._wait is None:
                self._show(progress)

    def _show(self, progress: Progress) -> None:
        every_s = BAR_EVERY_S if self._watched else LINE_EVERY_S
        if self._bar is not None or not self._watched:
            if time.monotonic() - self._shown_s < every_s:
                return
        self._shown_s = time.monotonic()
        if not self._watched:
            self._stream.write(describe(progress) + "\n")
            self._stream.flush()
            return
        if self._bar is None:
            from tqdm.auto import tqdm
            notebook = not self._stream.isatty()
            self._bar = tqdm(total=1.0, leave=False, file=None if notebook else self._stream,
                             dynamic_ncols=True, bar_format="{bar:16} {desc}")
        if progress.fraction is not None:
            self._bar.n = min(1.0, progress.fraction)
        self._bar.set_description_str(describe(progress), refresh=False)
        self._bar.refresh()

    def __enter__(self) -> "ProgressBar":
        if self._wait is not None:
            self._wait.daemon = True
            self._wait.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._wait is not None:
                self._wait.cancel()
            self._latest = None
        if self._bar is not None:
            self._bar.close()


def watched(stream: IO[str]) -> bool:
    """Whether a person looks at what is written there: a terminal, or a notebook."""
    return stream.isatty() or "ipykernel" in sys.modules


def shows_progress(call: Call) -> Call:
    """A call whose ``progress=True`` is a :class:`ProgressBar`; None is one for who watches."""
    @functools.wraps(call)
    def shown(*args: Any, **options: Any) -> Any:
        asked = options.get("progress")
        if asked is not True and (asked is not None or not watched(sys.stderr)):
            return call(*args, **options)
        with ProgressBar(after_s=0.0 if asked else UNASKED_AFTER_S) as bar:
            return call(*args, **{**options, "progress": bar})
    return shown  # type: ignore[return-value]


def callback_of(asked: Asked) -> Optional[Callback]:
    """What is called; :func:`shows_progress` has put a bar in the place of True."""
    return None if isinstance(asked, bool) else asked


def numbered(progress: Optional[Callback], what: str, count: int) -> Iterator[Optional[Callback]]:
    """Callbacks for ``count`` searches of one call: ``budget 3 of 5: searching``."""
    started_s = time.perf_counter()
    for number in range(count):
        yield part_of(progress, "%s %d of %d" % (what, number + 1, count), started_s, number,
                      count)


def part_of(progress: Optional[Callback], what: str, started_s: float, number: int = 0,
            count: int = 1) -> Optional[Callback]:
    """The callback for a search that ``what`` names, number ``number`` of ``count``.

    ``started_s``: when the call began, by ``time.perf_counter``.
    """
    if progress is None:
        return None

    def call(part: Progress) -> None:
        share = None if part.fraction is None else min(1.0, (number + part.fraction) / count)
        progress(replace(part, phase="%s: %s" % (what, part.phase), fraction=share,
                         elapsed_s=time.perf_counter() - started_s))
    return call
