"""The largest batch that fits a budget."""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Optional, Sequence

from ..mx.binding import checked_shape
from ..plan.plan import Plan
from ..util.errors import InfeasibleBudget, InputError
from ..util.units import budget_share, format_bytes, parse_budget
from .network import Session
from .planning import plan_session
from .requests import PlanRequest, Shapes


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


def search_batch(shapes: Shapes, request: PlanRequest, session_for: Callable[[Shapes], Session],
                 limit: int) -> MaxBatch:
    """Bisect over the batch size; memory grows with it, so each side has one answer.

    Raises
    ------
    InputError
        If the budget is a share (each batch has another total), or no shape has a batch.
    """
    sizes = {name: checked_shape(name, shape) for name, shape in shapes.items()}
    first = next(iter(sizes.values()), ())
    if not first:
        raise InputError("max_batch needs the shape of an input whose first dimension is the "
                         "batch, for example data=(1, 3, 224, 224)")
    budget = request.budget
    if budget is None or budget_share(budget) is not None:
        raise InputError("max_batch needs a budget in bytes, such as 8GB, not %r" % (budget,))
    budget_bytes = parse_budget(budget, 0)
    request = replace(request, budget=budget_bytes)
    plans: Dict[int, Plan] = {}
    reasons: Dict[int, str] = {}

    def with_batch(batch: int) -> Dict[str, Sequence[int]]:
        return {name: (batch, *shape[1:]) if shape[:1] == first[:1] else shape
                for name, shape in sizes.items()}

    def fits_unplanned(batch: int) -> bool:
        return session_for(with_batch(batch)).unplanned_total_bytes <= budget_bytes

    def fits_planned(batch: int) -> bool:
        try:
            plans[batch] = plan_session(session_for(with_batch(batch)), request)
        except InfeasibleBudget as error:
            reasons[batch] = str(error)
            return False
        return True

    unplanned = largest(fits_unplanned, 1, limit)
    planned = largest(fits_planned, max(unplanned, 1), limit)
    reason = "" if planned else "with a batch of %d, %s" % min(reasons.items())
    return MaxBatch(budget_bytes, unplanned, planned, plans.get(planned), reason)


def largest(fits: Callable[[int], bool], start: int, limit: int) -> int:
    """Largest number up to ``limit`` that fits, by doubling and bisection; 0 when none does."""
    low, high = 0, start
    while high <= limit and fits(high):
        low, high = high, limit + 1 if high == limit else min(2 * high, limit)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
