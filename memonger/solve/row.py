"""A row of a table: how :mod:`memonger.solve.auto` and a whole call are written down."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Generic, TypeVar

#: The state that the rows of a table share.
S = TypeVar("S")


@dataclass(frozen=True)
class Row(Generic[S]):
    """A row runs, if its time has come, and leaves better plans or bounds behind."""

    name: str
    #: What plans or proofs gain by it.
    why: str
    when: Callable[[S], bool]
    run: Callable[[S], None]
    #: Who describes the method: "" where it is nobody's but ours, or nothing to describe.
    paper: str = ""
    #: What it costs: programs, searches of the usual length, or shares of the time limit.
    price: str = ""

    def __str__(self) -> str:
        paper = " (%s)" % self.paper if self.paper else ""
        return "%s: %s%s; %s" % (self.name, self.why, paper, self.price)
