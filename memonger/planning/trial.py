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
#: A smallest plan above the budget is tried up to so many times the budget: nobody said that there
#: is memory for more.
_TRIED_ABOVE = 1.5


def code_within_budget(make: Callable[[Mapping[str, int]], Tuple[Code, Optional[Plan]]],
                       used_bytes: Callable[[Code, Plan], Optional[int]],
                       unplanned: Optional[Callable[[], Tuple[Code, Optional[Plan]]]] = None,
                       advice: str = "") -> Tuple[Code, Optional[Plan]]:
    """Code that keeps its plan's budget, and the plan with the bytes that the code takes.

    Where the code of no plan does, that of the unplanned step may: what it takes is foreseen no
    better than what plans take.

    Parameters
    ----------
    make : callable
        From the most bytes for pools, by fingerprint of the graph, to code and its plan; None where
        nothing is planned. It raises InfeasibleBudget where no plan takes so little. Then the
        smallest plan is tried, unless it is far above the budget: its code may take less than it
        says, and what that takes is what a refusal names.
    used_bytes : callable
        From code and its plan to the bytes that a step takes for its pool; None where it cannot be
        tried.
    unplanned : callable, optional
        Code and plan of the step as it is, to be tried before the budget is refused.
    advice : str
        What else a user can do, to be added to a refusal.

    Raises
    ------
    InfeasibleBudget
        If all code takes more. It names the least that any took.
    """
    try:
        return _planned(make, used_bytes, advice)
    except InfeasibleBudget as error:
        smallest = error.best_plan
        if unplanned is None or not isinstance(smallest, Plan) or \
                smallest.baseline_total_bytes > _TRIED_ABOVE * error.minimum_bytes:
            raise
        code, plan = unplanned()
        used = None if plan is None else used_bytes(code, plan)
        if plan is None or used is None:
            raise
        plan = _measured(plan, used)
        if plan.total_bytes <= error.budget_bytes:
            return code, plan
        if plan.total_bytes >= error.minimum_bytes:
            raise
        raise InfeasibleBudget(
            "no plan takes less than the unplanned code, which takes %s, above the budget of %s; "
            "ask for at least %s bytes%s" % (
                *format_distinct(plan.total_bytes, error.budget_bytes), plan.total_bytes, advice),
            error.budget_bytes, plan.total_bytes, best_plan=plan) from error


def _planned(make: Callable[[Mapping[str, int]], Tuple[Code, Optional[Plan]]],
             used_bytes: Callable[[Code, Plan], Optional[int]],
             advice: str) -> Tuple[Code, Optional[Plan]]:
    """Code of a plan that keeps its budget, or a refusal with the least that any took."""
    code, plan, refusal = _smallest_at_least(make, {})
    least_bytes = 0
    for margin in (*MARGINS, 0.0, None):
        if plan is None or plan.budget_bytes is None:
            return code, plan
        budget, used = plan.budget_bytes, used_bytes(code, plan)
        stated_bytes = plan.total_bytes
        if used is None:
            if refusal is not None:
                raise refusal
            return code, plan
        measured = _measured(plan, used)
        predicted = plan.planned.pool_by_graph_bytes
        outside_bytes = sum(plan.fixed_bytes.values())
        left = budget - outside_bytes
        if used <= left:
            return code, measured
        share = budget_share(plan.options.get("budget")) or 0.0
        if plan.method == "none" and share >= 1:  # of what unplanned code takes, not is predicted
            return code, _of_what_it_takes(measured, share)
        least_bytes = min(least_bytes or used, used)
        if margin is None or refusal is not None:
            break
        # What the code takes beyond the prediction is taken off the next budget.
        most = int(min(predicted, left) * left / used * margin)
        try:
            code, plan, refusal = _smallest_at_least(
                make, {plan.graph.fingerprint: max(most, 1)}, predicted)
        except InfeasibleBudget:
            break
    total_bytes = least_bytes + outside_bytes
    raise InfeasibleBudget(
        "the compiled code takes %s where the plan says %s, above the budget of %s; ask for at "
        "least %s bytes%s" % (
            *format_distinct(total_bytes, stated_bytes, budget), total_bytes, advice),
        budget, total_bytes, best_plan=measured) from refusal


def _smallest_at_least(
        make: Callable[[Mapping[str, int]], Tuple[Code, Optional[Plan]]], most: Mapping[str, int],
        tried_bytes: Optional[int] = None
) -> Tuple[Code, Optional[Plan], Optional[InfeasibleBudget]]:
    """Code and plan for so many bytes, or those of the smallest plan with what refused the bytes.

    Raises that where the smallest plan takes no less than one that was tried, or far more than the
    budget.
    """
    try:
        return (*make(most), None)
    except InfeasibleBudget as error:
        smallest = error.best_plan
        if not isinstance(smallest, Plan) or not smallest.pool_bytes or (
                smallest.total_bytes > _TRIED_ABOVE * error.budget_bytes if tried_bytes is None
                else smallest.pool_bytes >= tried_bytes):
            raise
        return (*make({smallest.graph.fingerprint: smallest.pool_bytes}), error)


def _measured(plan: Plan, used_bytes: int) -> Plan:
    """The plan with what its code takes, which may be less than was proven of predictions."""
    measured = plan.changed(planned=replace(
        plan.planned, pool_bytes=used_bytes,
        predicted_pool_bytes=plan.planned.pool_by_graph_bytes))
    return measured.changed(minimum_total_bytes=None) \
        if (plan.minimum_total_bytes or 0) > measured.total_bytes else measured


def _of_what_it_takes(plan: Plan, share: float) -> Plan:
    """The plan of unplanned code with a share of its measured total for its budget."""
    unplanned = replace(plan.unplanned, pool_bytes=plan.pool_bytes,
                        predicted_pool_bytes=plan.unplanned.pool_by_graph_bytes)
    return plan.changed(unplanned=unplanned, budget_bytes=int(share * unplanned.total_bytes))
