"""A plan that a search found, and what native searches need of who collects them."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Optional, Protocol

from ..graph.schedule import Schedule
from .effort import Effort

#: Called with cost and bytes of the best plan so far (None without one).
Poll = Callable[[Optional[float], Optional[int]], None]


#: Bytes of a candidate that the host cannot hold: no budget is as large.
NO_BUDGET = 2 ** 62


@dataclass(frozen=True)
class Candidate:
    """A schedule with what it takes: time beyond the unplanned step, pool, workspace, objects."""

    schedule: Schedule
    extra_s: float
    bytes: int


class Collector(Protocol):
    """Who asks for searches and keeps what they find: :class:`memonger.solve.board.Board`."""

    #: Most bytes of pool, workspace and objects.
    limit_bytes: int
    effort: Effort
    best: Optional[Candidate]
    interrupted: bool

    @property
    def over(self) -> bool:
        """True when the work is spent, or the user has had enough."""
        ...

    def within(self, share: float) -> bool:
        """True when the best plan costs no more than the bound and this share of the step."""
        ...

    def poll(self) -> Optional[Poll]:
        """What a native search calls, so that there is news ten times a second."""
        ...

    def evaluate(self, schedule: Schedule) -> Candidate:
        """Count a schedule's bytes and time exactly, and keep it if it is the best so far."""
        ...
