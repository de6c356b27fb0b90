"""The largest batch that fits a budget."""
from __future__ import annotations

import time
from typing import Callable, Dict, Optional

from ..plan.max_batch import MaxBatch, largest, refused_share
from ..plan.plan import Budget, Plan
from ..report.progress import Callback, part_of
from ..util.errors import InfeasibleBudget, InputError
from ..util.units import budget_share, parse_budget

#: At least about as many searches as are made: they share the time limit.
SEARCHES = 8


def search_batch(budget: Budget, limit: int, total_bytes: Callable[[int], int],
                 plan_at: Callable[[int, int, Optional[Callback]], Plan],
                 progress: Optional[Callback] = None) -> MaxBatch:
    """Search the batch size; memory grows with it, so each side has one answer.

    Parameters
    ----------
    budget : int or str
        Bytes or "8GB".
    limit : int
        The largest batch to try.
    total_bytes : callable
        From a batch size to what its unplanned step takes.
    plan_at : callable
        From a batch size, the budget in bytes and what is called with progress to a plan.
    progress : callable, optional
        Called with the progress of each plan.

    Returns
    -------
    MaxBatch

    Raises
    ------
    InputError
        If the budget is a share: each batch has another total.
    """
    if budget is None or budget_share(budget) is not None:
        raise InputError("max_batch needs a budget in bytes, such as 8GB, not %r" % (budget,))
    budget_bytes = parse_budget(budget, 0)
    started_s = time.perf_counter()
    plans: Dict[int, Plan] = {}
    reasons: Dict[int, str] = {}

    def need(batch: int) -> float:
        try:
            plans[batch] = plan_at(batch, budget_bytes,
                                   part_of(progress, "batch %d" % batch, started_s))
        except InfeasibleBudget as error:
            reasons[batch] = str(error)
            return refused_share(error, budget_bytes)
        return 0.0  # it fits; how much is left does not matter

    unplanned = largest(lambda batch: total_bytes(batch) / budget_bytes, 1, limit)
    planned = largest(need, max(unplanned, 1), limit)
    reason = "" if planned else "with a batch of %d, %s" % min(reasons.items())
    return MaxBatch(budget_bytes, unplanned, planned, plans.get(planned), reason)
