"""The largest batch that fits a budget."""
from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Callable, Dict

from ..plan.max_batch import MaxBatch, largest, refused_share
from ..plan.plan import Plan
from ..report.progress import part_of
from ..solve import fewer_variants
from ..util.errors import InfeasibleBudget, InputError, NoPlanInTime
from ..util.units import budget_share, parse_budget

#: At least about as many batches are tried: together they have half of the time limit, and the plan
#: of the largest a quarter, for reading each batch takes its time, too.
SEARCHES = 8
#: Steps with a search of their own, which searches that find a batch go without.
_WITHOUT = frozenset(["least memory", fewer_variants.NAME])


def search_batch(request: Any, limit: int, total_bytes: Callable[[int], int],
                 plan_at: Callable[[Any, int], Plan]) -> MaxBatch:
    """Search the batch size; memory grows with it, so each side has one answer.

    Short searches find the batch, and a longer one its plan.

    Parameters
    ----------
    request : PlanRequest or the like of a frontend
        Its ``budget`` in bytes or "8GB", its ``time_limit`` for all searches together.
    limit : int
        The largest batch to try.
    total_bytes : callable
        From a batch size to what its unplanned step takes.
    plan_at : callable
        From a request and a batch size to a plan.

    Returns
    -------
    MaxBatch

    Raises
    ------
    InputError
        If the budget is a share: each batch has another total.
    """
    budget, progress = request.budget, request.progress
    if budget is None or budget_share(budget) is not None:
        raise InputError("max_batch needs a budget in bytes, such as 8GB, not %r" % (budget,))
    budget_bytes = parse_budget(budget, 0)
    started_s = time.perf_counter()
    request = replace(request, budget=budget_bytes)
    short = replace(request, prove=False, time_limit=request.time_limit / (2 * SEARCHES),
                    without=request.without | _WITHOUT)
    longer = replace(request, time_limit=request.time_limit / 4)
    plans: Dict[int, Plan] = {}
    reasons: Dict[int, str] = {}

    def plan(asked: Any, batch: int) -> Plan:
        shown = part_of(progress, "batch %d" % batch, started_s)
        return plan_at(replace(asked, progress=shown), batch)

    def need(batch: int) -> float:
        try:
            plans[batch] = plan(short, batch)
        except InfeasibleBudget as error:
            reasons[batch] = str(error)
            return refused_share(error, budget_bytes)
        return 0.0  # it fits; how much is left does not matter

    unplanned = largest(lambda batch: total_bytes(batch) / budget_bytes, 1, limit)
    planned = largest(need, max(unplanned, 1), limit)
    if not planned:
        return MaxBatch(budget_bytes, unplanned, 0, None,
                        "with a batch of %d, %s" % min(reasons.items()))
    best = plans[planned]
    try:
        best = min(plan(longer, planned), best, key=lambda plan: plan.overhead)
    except (InfeasibleBudget, NoPlanInTime):
        pass  # what a short search has found stays
    return MaxBatch(budget_bytes, unplanned, planned, best)
