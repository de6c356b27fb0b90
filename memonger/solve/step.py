"""A row of a table of steps: how :mod:`memonger.solve.auto` and a whole call are written down."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Generic, TypeVar

#: The board of a table.
B = TypeVar("B")


@dataclass(frozen=True)
class Step(Generic[B]):
    """A step is taken on a board, if its time has come, and leaves better plans or bounds there."""

    name: str
    #: What plans or proofs gain by it.
    worth: str
    when: Callable[[B], bool]
    run: Callable[[B], None]
