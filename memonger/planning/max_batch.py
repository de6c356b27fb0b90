"""The largest batch that fits a budget."""
from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Mapping

from ..plans.max_batch import MaxBatch, largest, refused_share
from ..plans.plan import Plan
from ..report.progress import part_of
from ..solve.auto import ALL_BUT_GIVEN
from ..util.errors import InfeasibleBudget, InputError, NoPlanInTime
from ..util.units import is_of_step, parse_budget

#: The share of the time limit for the smallest plan.
_SMALLEST = 0.6
#: The share of the time limit for the plan of the largest batch.
_LARGEST = 0.25
#: The share of the time limit for each batch, where the method takes no given plan.
_EACH = 1 / 16
#: The smallest plan is searched at this multiple of the largest unplanned batch.
_TIMES = 4
#: Most extra time of the smallest plan, as a share of the step's.
_MOST_OVERHEAD = 0.5
#: Rows of a call that the smallest plan at another batch goes without.
_WITHOUT = ALL_BUT_GIVEN | {"no variants"}


@dataclass(frozen=True)
class Batches:
    """The largest batches that were found, and the plan that said so."""

    unplanned: int
    planned: int
    #: The smallest plan of one batch, which is tried at others.
    smallest: Plan
    #: Plans by batch that fit, and why none does.
    plans: Mapping[int, Plan]
    reasons: Mapping[int, str]


def search_batch(request: Any, limit: int, total_bytes: Callable[[int], int],
                 plan_at: Callable[[Any, int], Plan]) -> MaxBatch:
    """Search the largest batch, unplanned and planned; memory grows with the batch.

    The smallest plan of one batch is tried at others, which share its ops, and the largest that it
    fits gets a plan of its own.

    Parameters
    ----------
    request : PlanRequest or the like of a frontend
        Its ``budget`` is in bytes or like "8GB"; its ``time_limit`` is for all searches together.
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
    return with_plan(request, largest_batches(request, limit, total_bytes, plan_at), plan_at)


def largest_batches(request: Any, limit: int, total_bytes: Callable[[int], int],
                    plan_at: Callable[[Any, int], Plan], near: int = 0) -> Batches:
    """The batches of :func:`search_batch`, without a plan of the largest one's own.

    ``near``: about how large a batch is that fits unplanned; 0: nobody knows.
    """
    budget_bytes = _budget_bytes(request)
    plan = _planner(request, plan_at)
    plans: Dict[int, Plan] = {}
    reasons: Dict[int, str] = {}
    totals: Dict[int, int] = {}

    def unplanned_need(batch: int) -> float:
        totals[batch] = total_bytes(batch)
        return totals[batch] / budget_bytes

    def need(batch: int) -> float:
        try:
            plans[batch] = plan(batch, budget=budget_bytes, prove=False, given=smallest,
                                time_limit=_EACH * request.time_limit,
                                without=request.without | _WITHOUT)
        except InfeasibleBudget as error:
            reasons[batch] = str(error)
            return refused_share(error, budget_bytes)
        return min(plans[batch].total_bytes / budget_bytes, 1.0)

    unplanned = largest(unplanned_need, 1, limit, ((0, 0.0), (near, 1.0))[:2 if near else 1])
    batch = min(max(1, _TIMES * unplanned), limit)
    most = _MOST_OVERHEAD if request.method == "auto" else None  # others ignore it
    smallest = plan(batch, budget=None, overhead=most, prove=False,
                    time_limit=_SMALLEST * request.time_limit)
    line = [(number, size / budget_bytes) for number, size in (
        (0, _fixed_bytes(totals)), (batch, smallest.total_bytes))]
    planned = max(unplanned, largest(need, unplanned + 1, limit, line))
    return Batches(unplanned, planned, smallest, plans, reasons)


def with_plan(request: Any, found: Batches, plan_at: Callable[[Any, int], Plan]) -> MaxBatch:
    """The answer of :func:`search_batch`: the largest batch has a plan of its own."""
    budget_bytes = _budget_bytes(request)
    if not found.planned:
        return MaxBatch(budget_bytes, found.unplanned, 0, None,
                        "with a batch of %d, %s" % min(found.reasons.items()))
    best = found.plans.get(found.planned)
    try:
        longer = _planner(request, plan_at)(
            found.planned, budget=budget_bytes, given=found.smallest,
            time_limit=_LARGEST * request.time_limit)
        best = longer if best is None else min(longer, best, key=lambda plan: plan.overhead)
    except (InfeasibleBudget, NoPlanInTime):
        if best is None:
            raise
    return MaxBatch(budget_bytes, found.unplanned, found.planned, best)


def _budget_bytes(request: Any) -> int:
    if request.budget is None or is_of_step(request.budget):
        raise InputError("max_batch needs a budget in bytes, such as 8GB, not %r"
                         % (request.budget,))
    return parse_budget(request.budget, 0)


def _planner(request: Any, plan_at: Callable[[Any, int], Plan]) -> Callable[..., Plan]:
    """``plan_at`` by a batch and what changes in the request."""
    started_s = time.perf_counter()

    def plan(batch: int, **asked: Any) -> Plan:
        shown = part_of(request.progress, "batch %d" % batch, started_s)
        return plan_at(replace(request, progress=shown, **asked), batch)
    return plan


def _fixed_bytes(totals: Mapping[int, int]) -> float:
    """Bytes that do not grow with the batch, by the totals of the smallest and largest one."""
    (low, less), (high, more) = min(totals.items()), max(totals.items())
    return max(0.0, less - low * (more - less) / (high - low)) if high > low else 0.0
