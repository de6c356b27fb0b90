"""Plans for many budgets: the frontier of memory and time."""
from __future__ import annotations

from dataclasses import replace
from typing import Callable, Iterable, List

from ..plans.plan import Budget, Plan
from ..util.errors import InfeasibleBudget
from ..util.units import parse_budget

BUDGETS = ("100%", "90%", "80%", "70%", "60%", "50%", "40%", "30%", "25%", "20%")


def sweep_budgets(budgets: Iterable[Budget], whole_bytes: int, plan_at: Callable[[int], Plan],
                  least_bytes: int = 0) -> List[Plan]:
    """Plans from the largest budget to the smallest; those that no plan meets are left out.

    Budgets below ``least_bytes``, the least that any plan takes, are skipped, and so are those that
    a refusal of a smaller one proves too small.

    Overheads never fall as budgets fall: where a tighter budget found a cheaper plan, the looser
    one gets it too.
    """
    plans: List[Plan] = []
    for budget in sorted({parse_budget(b, whole_bytes) for b in budgets if b is not None}):
        if budget < least_bytes:
            continue
        try:
            new = plan_at(budget)
        except InfeasibleBudget as error:
            least_bytes = max(least_bytes, error.bound_bytes)
            continue
        if plans and plans[-1].overhead < new.overhead:
            new = replace(plans[-1].with_bound(new.bound), budget_bytes=budget)
        plans.append(new)
    return plans[::-1]
