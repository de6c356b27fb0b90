"""The largest batch that fits a budget."""
from __future__ import annotations

import time
from dataclasses import replace
from typing import Callable, Dict, Sequence

from ...plan.max_batch import MaxBatch, largest
from ...plan.plan import Plan
from ...report.progress import part_of
from ...util.errors import InfeasibleBudget, InputError
from ...util.units import budget_share, parse_budget
from ..capture.binding import checked_shape
from .network import Session
from .planning import plan_session
from .requests import PlanRequest, Shapes

#: About as many searches as doubling and bisection make: they share the time limit.
_SEARCHES = 8


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
    request = replace(request, budget=budget_bytes, time_limit=request.time_limit / _SEARCHES)
    started_s = time.perf_counter()
    plans: Dict[int, Plan] = {}
    reasons: Dict[int, str] = {}

    def with_batch(batch: int) -> Dict[str, Sequence[int]]:
        return {name: (batch, *shape[1:]) if shape[:1] == first[:1] else shape
                for name, shape in sizes.items()}

    def fits_unplanned(batch: int) -> bool:
        return session_for(with_batch(batch)).unplanned_total_bytes <= budget_bytes

    def fits_planned(batch: int) -> bool:
        try:
            plans[batch] = plan_session(session_for(with_batch(batch)), replace(
                request, progress=part_of(request.progress, "batch %d" % batch, started_s)))
        except InfeasibleBudget as error:
            reasons[batch] = str(error)
            return False
        return True

    unplanned = largest(fits_unplanned, 1, limit)
    planned = largest(fits_planned, max(unplanned, 1), limit)
    reason = "" if planned else "with a batch of %d, %s" % min(reasons.items())
    return MaxBatch(budget_bytes, unplanned, planned, plans.get(planned), reason)
