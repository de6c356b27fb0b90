"""Helpers for messages."""
from __future__ import annotations

from typing import Sequence


def listed(names: Sequence[str], most: int = 3) -> str:
    """``"a, b, c and 2 more"``."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else "%s and %d more" % (shown, len(names) - most)


def one_line(error: BaseException) -> str:
    """The first line of an error's message, or its class where the message is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
