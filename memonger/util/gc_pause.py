"""Python's cyclic garbage collector, paused while records of graphs are made.

Graphs, schedules and the JSON of symbols are trees of many small objects without cycles. Counting
references frees them; the collector only looks at all of them again and again as they become more,
which took a third of the processor's time for a network with 50 000 ops.
"""
from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import Iterator


@contextmanager
def paused() -> Iterator[None]:
    """Pause cyclic collection inside the block or the decorated function; blocks may nest."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
