"""The largest batch that fits a budget, as an answer."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from ..util.errors import InfeasibleBudget
from ..util.units import format_bytes
from .plan import UNKNOWN_TIME, Plan


@dataclass(frozen=True)
class MaxBatch:
    """Largest batches; 0 when not even one sample fits."""

    budget_bytes: int
    unplanned: int
    planned: int
    #: The plan for ``planned``; None when nothing fits.
    plan: Optional[Plan] = field(default=None, repr=False)
    #: Why nothing fits.
    reason: str = ""
    #: What the answer leaves out.
    notes: Tuple[str, ...] = ()

    def to_dict(self) -> Dict[str, Any]:
        """All numbers, fit for JSON."""
        return {"budget_bytes": self.budget_bytes, "unplanned": self.unplanned,
                "planned": self.planned,
                "overhead": self.plan.overhead if self.plan else None,
                "total_bytes": self.plan.total_bytes if self.plan else None,
                "reason": self.reason, "notes": list(self.notes)}

    def __str__(self) -> str:
        if self.reason:
            return "no batch fits: " + self.reason
        gain = " (%.1f times as many, %s)" % (
            self.planned / self.unplanned, "%+.1f %% time a step" % (100 * self.plan.overhead)
            if self.plan.time_is_known else UNKNOWN_TIME) if self.plan and self.unplanned else ""
        return "\n".join(["largest batch in %s: %d unplanned, %d planned%s" % (
            format_bytes(self.budget_bytes), self.unplanned, self.planned, gain),
            *("note: " + note for note in self.notes)])


#: So many guesses of lines are followed upward; needs that are on none give them away one by one.
_TRUSTED = 8


def refused_share(error: InfeasibleBudget, budget_bytes: int) -> float:
    """What a refused batch needs, as a share of the budget: more than 1."""
    return max(error.minimum_bytes, budget_bytes + 1) / budget_bytes


def largest(need: Callable[[int], float], start: int, limit: int,
            line: Sequence[Tuple[int, float]] = ((0, 0.0),)) -> int:
    """Largest number up to ``limit`` whose need is at most 1; 0 when none is.

    Where needs lie near a straight line, lines through the last two say where the need is 1, and a
    guess that fits is followed by its neighbours, in strides that double. Guesses that gain little
    give way to bisection: O(log n) calls.

    Parameters
    ----------
    need : callable
        What a number needs, as a share of what there is; it grows with the number. Where the number
        fits it may be 0, for not known: then the next is twice as large.
    start : int
        The first number to try.
    limit : int
    line : sequence of tuples of int and float
        Numbers with what they need about, known before: where to begin, not what to answer.

    Returns
    -------
    int
    """
    known = list(line)
    low, high, stride, asked = 0, max(start, min(_where_one(known), limit)), 1, 0
    while high <= limit:
        share, asked = need(high), asked + 1
        if share:
            known.append((high, share))
        if share > 1:
            break
        low, guess = high, _where_one(known) if share else 2 * high
        high = limit + 1 if low == limit else min(max(guess, low + stride), limit)
        stride = 1 if guess >= low + stride and asked < _TRUSTED else 2 * stride
    guess, stride, slow = _where_one(known), 1, 0
    while high - low > 1:
        width = high - low
        middle = guess if low < guess < high and slow < 2 else (low + high) // 2
        slow = 0 if slow == 2 else slow
        share = need(middle)
        if share:
            known.append((middle, share))
        if share > 1:
            high, guess, stride = middle, _where_one(known), 1
        else:
            low, guess, stride = middle, middle + stride, 2 * stride
        slow += 2 * (high - low) > width
    return low


def _where_one(points: Sequence[Tuple[int, float]]) -> int:
    """Where the line through the last two points is 1; 0 where it does not rise."""
    (other, other_share), (last, share) = points[-2:] if len(points) > 1 else [(0, 0.0)] * 2
    rise = (share - other_share) / (last - other) if last != other else 0.0
    return int(last - (share - 1) / rise) if rise > 0 else 0
