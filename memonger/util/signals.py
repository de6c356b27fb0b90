"""Ctrl-C without losing what was found."""
from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any, Iterator, List


@contextlib.contextmanager
def collected(raised: List[BaseException]) -> Iterator[None]:
    """Ctrl-C adds a KeyboardInterrupt to ``raised`` instead of raising it.

    For calls of native code: raised, it would appear at any instruction of a callback, the first
    included, and ctypes would print and forget it. A program's own handler of the signal stays
    in charge, and so does the main thread's when this is another one.
    """
    with _handler(lambda *_: raised.append(KeyboardInterrupt())):
        yield


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Ignore the first Ctrl-C, because the work is nearly done; raise the second."""
    seen: List[bool] = []

    def handle(*_: Any) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(True)
    with _handler(handle):
        yield


@contextlib.contextmanager
def _handler(handle: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread() or \
            signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
