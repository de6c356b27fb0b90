"""Environment variables that are set for a while."""
from __future__ import annotations

import contextlib
import os
import threading
from typing import Iterator

_alone = threading.RLock()


@contextlib.contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """An environment variable set for a while; MXNet reads many of its own at every bind.

    Threads take turns; otherwise one would restore the value that another has just set.
    """
    with _alone:
        before = os.environ.get(name)
        os.environ[name] = value
        try:
            yield
        finally:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before
