"""Plans for many budgets: of a network that a frontend reads, and of the graph of a plan."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Iterable, List, Optional, Sequence

from ..plans.plan import Budget, Plan
from ..report.progress import Callback, numbered
from ..solve import Options, solve
from ..solve.frontier import BUDGETS, KNEE_BUDGETS, find_knee, sweep_budgets
from .requests import pins


def sweep_requests(request: Any, budgets: Sequence[Budget], whole_bytes: int,
                   plan_of: Callable[[Any], Plan]) -> List[Plan]:
    """Plans from the largest budget to the smallest that any plan meets.

    ``request``: a frontend's, with ``budget``, ``time_limit`` and ``progress``; all plans together
    have its time limit.
    ``whole_bytes``: the unplanned total, for shares.
    ``plan_of``: the plan of the request with a budget.
    """
    request = replace(request, time_limit=request.time_limit / max(len(budgets), 1))
    shown = numbered(request.progress, "budget", len(budgets))
    return sweep_budgets(budgets, whole_bytes, lambda budget: plan_of(
        replace(request, budget=budget, progress=next(shown))))


def at_knee(request: Any, whole_bytes: int, plan_of: Callable[[Any], Plan]) -> Any:
    """A request for the knee as one for the share where that is, and the plan there as a start.

    Parameters are those of :func:`sweep_requests`; the plans take half of the request's time limit.
    """
    half = replace(request, time_limit=request.time_limit / 2)
    each = replace(half, time_limit=half.time_limit / len(KNEE_BUDGETS))
    shown = numbered(request.progress, "budget", len(KNEE_BUDGETS))
    knee = find_knee(whole_bytes, lambda budget: plan_of(
        replace(each, budget=budget, progress=next(shown, None))))
    return replace(half, budget=knee.share, given=knee.plan, notes=(*request.notes, knee.note))


def sweep_like(plan: Plan, time_limit: float, progress: Optional[Callback] = None,
               budgets: Iterable[Budget] = BUDGETS) -> List[Plan]:
    """Plans of a plan's graph for other budgets, and the plan itself; options are the plan's.

    ``time_limit``: seconds for all budgets together.
    """
    asked, budgets = plan.options, list(budgets)
    options = Options(
        time_limit_s=time_limit / max(len(budgets), 1), storage=plan.storage,
        costs=plan.costs, variants=asked.get("variants", "none"),
        keep=pins(plan.graph, asked.get("keep", ()), "keep"),
        recompute=pins(plan.graph, asked.get("recompute", ()), "recompute"),
        max_clones=asked.get("max_clones", 0),
        host_budget_bytes=asked.get("host_budget_bytes"), fixed_bytes=dict(plan.fixed_bytes))
    outside_bytes = sum(plan.fixed_bytes.values())
    shown = numbered(progress, "budget", len(budgets))
    plans = sweep_budgets(budgets, plan.baseline_total_bytes, lambda budget: solve(
        plan.graph, budget - outside_bytes, asked.get("method", "auto"),
        replace(options, progress=next(shown))), plan.minimum_total_bytes or 0)
    return [*plans, plan]
