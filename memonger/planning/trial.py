"""Compiled code under a budget: tried, and planned again for less where it takes more.

A compiler decides only when it makes code what shares memory and what it keeps beside the values of
a plan, so the bytes of a plan are a prediction until its code has run.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Callable, Mapping, Optional, Tuple, TypeVar

from ..plans.plan import Plan
from ..util.errors import InfeasibleBudget
from ..util.units import budget_share, format_distinct

Code = TypeVar("Code")

#: Where code takes more than the budget it is planned again, once for each of these: for this share
#: of what the measurement leaves.
MARGINS = (0.99, 0.93)


def code_within_budget(make: Callable[[Mapping[str, int]], Tuple[Code, Optional[Plan]]],
                       used_bytes: Callable[[Code, Plan], Optional[int]],
                       given: Optional[Plan] = None,
                       advice: str = "") -> Tuple[Code, Optional[Plan]]:
    """Code that keeps its plan's budget, and the plan with the bytes that the code takes.

    Parameters
    ----------
    make : callable
        From the most bytes for pools, by fingerprint of the graph, to code and its plan; None where
        nothing is planned. It raises InfeasibleBudget where no plan takes so little.
    used_bytes : callable
        From code and its plan to the bytes that a step takes for its pool; None where it cannot be
        tried.
    given : Plan, optional
        A plan that must not be made again.
    advice : str
        What else a user can do, to be added to a refusal.

    Raises
    ------
    InfeasibleBudget
        If the code of all plans takes more.
    """
    code, plan = make({})
    least_bytes, is_smallest = 0, False
    for margin in (*MARGINS, None):
        if plan is None or plan.budget_bytes is None:
            return code, plan
        budget, used = plan.budget_bytes, used_bytes(code, plan)
        if used is None:
            return code, plan
        measured = replace(plan, planned=replace(
            plan.planned, pool_bytes=used, predicted_pool_bytes=plan.pool_bytes))
        predicted, outside_bytes = plan.pool_bytes, sum(plan.fixed_bytes.values())
        left = budget - outside_bytes
        if used <= left:
            return code, measured
        share = budget_share(plan.options.get("budget")) or 0.0
        if plan.method == "none" and share >= 1:  # of what unplanned code takes, not is predicted
            return code, _of_what_it_takes(measured, share)
        least_bytes = min(least_bytes or used, used)
        is_given = given is not None and given.graph.fingerprint == plan.graph.fingerprint
        if margin is None or is_smallest or is_given:
            break
        # What the code takes beyond the prediction is taken off the next budget.
        fingerprint = plan.graph.fingerprint
        most = int(min(predicted, left) * left / used * margin)
        try:
            code, plan = make({fingerprint: most})
        except InfeasibleBudget as error:
            smallest_bytes = getattr(error.best_plan, "pool_bytes", 0)
            if not 0 < smallest_bytes < predicted:
                break
            (code, plan), is_smallest = make({fingerprint: smallest_bytes}), True
    total_bytes = least_bytes + outside_bytes
    raise InfeasibleBudget(
        "the compiled code takes %s where the plan says %s, above the budget of %s; %s%s" % (
            *format_distinct(total_bytes, predicted + outside_bytes, budget),
            "plan again for %d bytes" % (budget * budget // total_bytes) if is_given else
            "ask for at least the first", advice),
        budget, total_bytes, best_plan=measured)


def _of_what_it_takes(plan: Plan, share: float) -> Plan:
    """The plan of unplanned code with a share of its measured total for its budget."""
    unplanned = replace(plan.unplanned, pool_bytes=plan.pool_bytes,
                        predicted_pool_bytes=plan.unplanned.pool_by_graph_bytes)
    return replace(plan, unplanned=unplanned, budget_bytes=int(share * unplanned.total_bytes))
