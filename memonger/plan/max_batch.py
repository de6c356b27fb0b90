"""The answer to the question for the largest batch that fits a budget."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Optional

from ..util.units import format_bytes
from .plan import Plan


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

    def to_dict(self) -> Dict[str, Any]:
        """All numbers, fit for JSON."""
        return {"budget_bytes": self.budget_bytes, "unplanned": self.unplanned,
                "planned": self.planned,
                "overhead": self.plan.overhead if self.plan else None,
                "total_bytes": self.plan.total_bytes if self.plan else None,
                "reason": self.reason}

    def __str__(self) -> str:
        if self.reason:
            return "no batch fits: " + self.reason
        gain = " (%.1f times as many, %+.1f %% time a step)" % (
            self.planned / self.unplanned, 100 * self.plan.overhead) \
            if self.plan and self.unplanned else ""
        return "largest batch in %s: %d unplanned, %d planned%s" % (
            format_bytes(self.budget_bytes), self.unplanned, self.planned, gain)


def largest(fits: Callable[[int], bool], start: int, limit: int) -> int:
    """Largest number up to ``limit`` that fits, by doubling and bisection; 0 when none does."""
    low, high = 0, start
    while high <= limit and fits(high):
        low, high = high, limit + 1 if high == limit else min(2 * high, limit)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
