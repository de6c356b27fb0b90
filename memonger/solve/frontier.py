"""Plans for many budgets: the frontier of memory and time."""
from __future__ import annotations

from typing import Callable, Iterable, List, NamedTuple

from ..plans.frontier import frontier, knee
from ..plans.plan import Budget, Plan
from ..util.errors import InfeasibleBudget
from ..util.units import parse_budget

#: What a sweep plans for by itself, in shares of the unplanned total.
BUDGETS = ("100%", "90%", "80%", "70%", "60%", "50%", "40%", "30%", "25%", "20%")
#: The same where only the knee is looked for: plans for them take half of a call's time limit.
KNEE_BUDGETS = ("100%", "80%", "65%", "50%", "40%", "30%", "20%")


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
            new = plans[-1].with_bound(new.bound).changed(budget_bytes=budget)
        plans.append(new)
    return plans[::-1]


class Knee(NamedTuple):
    """Where less memory starts to cost more time."""

    #: Of the unplanned total, such as "50%".
    share: str
    plan: Plan
    #: A sentence that says where it is, with the curve.
    note: str


def find_knee(whole_bytes: int, plan_at: Callable[[int], Plan]) -> Knee:
    """The knee of the frontier; where there are two plans at most, the faster one.

    ``whole_bytes``: the unplanned total.
    ``plan_at``: the plan for a budget in bytes.
    Raises InfeasibleBudget if there is not even a plan for the unplanned total.
    """
    plans = sweep_budgets(KNEE_BUDGETS, whole_bytes, plan_at) or [plan_at(whole_bytes)]
    plan = knee(plans) or frontier(plans)[-1]
    shares = {parse_budget(budget, whole_bytes): budget for budget in reversed(KNEE_BUDGETS)}
    share = shares[plan.budget_bytes or 0]
    return Knee(share, plan, "the knee of memory against time is at %s of the unplanned total (%s)"
                % (share, ", ".join("%s: %+.1f %% time" % (
                    shares[other.budget_bytes or 0], 100 * other.overhead) for other in plans)))
