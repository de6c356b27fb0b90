"""Plans for many budgets: the frontier of memory and time."""
from __future__ import annotations

from dataclasses import replace
from typing import Callable, Iterable, List, Optional

from ..plan.plan import Budget, Plan
from ..util.errors import InfeasibleBudget
from ..util.units import parse_budget
from .inputs import pins
from .requests import ProgressCallback

BUDGETS = ("100%", "90%", "80%", "70%", "60%", "50%", "40%", "30%", "25%", "20%")


def sweep_budgets(budgets: Iterable[Budget], whole_bytes: int, plan_at: Callable[[int], Plan],
                  least_bytes: int = 0) -> List[Plan]:
    """Plans from the largest budget to the smallest; those that no plan meets are left out.

    Budgets below ``least_bytes``, the least that any plan takes, are skipped.

    Overheads never fall as budgets fall: where a tighter budget found a cheaper plan, the looser
    one gets it too.
    """
    found: List[Plan] = []
    for budget in sorted({parse_budget(b, whole_bytes) for b in budgets if b is not None}):
        if budget < least_bytes:
            continue
        try:
            new = plan_at(budget)
        except InfeasibleBudget:
            continue
        if found and found[-1].overhead < new.overhead:
            new = replace(found[-1].with_bound(new.bound), budget_bytes=budget)
        found.append(new)
    return found[::-1]


def sweep_like(plan: Plan, time_limit: float, progress: Optional[ProgressCallback] = None,
               budgets: Iterable[Budget] = BUDGETS) -> List[Plan]:
    """Plans of the same graph for other budgets, and the plan; op times and options are the plan's.
    """
    from ..solve import solve
    from ..solve.options import Options
    asked = plan.options
    options = Options(
        time_limit_s=time_limit, storage=plan.storage, backend=plan.backend, costs=plan.costs,
        variants=asked.get("variants", "none"), progress=progress,
        keep=pins(plan.graph, asked.get("keep", ()), "keep"),
        recompute=pins(plan.graph, asked.get("recompute", ()), "recompute"),
        max_clones=asked.get("max_clones", 0), fixed_bytes=dict(plan.fixed_bytes))
    outside_bytes = sum(plan.fixed_bytes.values())
    found = sweep_budgets(budgets, plan.baseline_total_bytes, lambda budget: solve(
        plan.graph, budget - outside_bytes, asked.get("method", "auto"), options),
        plan.minimum_total_bytes or 0)
    return [*found, plan]
