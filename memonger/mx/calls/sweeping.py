"""Plans of a plan's graph for other budgets."""
from __future__ import annotations

from dataclasses import replace
from typing import Iterable, List, Optional

from ...plan.plan import Budget, Plan
from ...report.progress import Callback, numbered
from ...solve.frontier import BUDGETS, sweep_budgets
from .inputs import pins


def sweep_like(plan: Plan, time_limit: float, progress: Optional[Callback] = None,
               budgets: Iterable[Budget] = BUDGETS) -> List[Plan]:
    """Plans of the same graph for other budgets, and the plan; op times and options are the plan's.

    ``time_limit``: seconds for all budgets together.
    """
    from ...solve import solve
    from ...solve.options import Options
    asked, budgets = plan.options, list(budgets)
    options = Options(
        time_limit_s=time_limit / max(len(budgets), 1), storage=plan.storage,
        backend=plan.backend, costs=plan.costs, variants=asked.get("variants", "none"),
        keep=pins(plan.graph, asked.get("keep", ()), "keep"),
        recompute=pins(plan.graph, asked.get("recompute", ()), "recompute"),
        max_clones=asked.get("max_clones", 0), fixed_bytes=dict(plan.fixed_bytes))
    outside_bytes = sum(plan.fixed_bytes.values())
    shown = numbered(progress, "budget", len(budgets))
    found = sweep_budgets(budgets, plan.baseline_total_bytes, lambda budget: solve(
        plan.graph, budget - outside_bytes, asked.get("method", "auto"),
        replace(options, progress=next(shown))), plan.minimum_total_bytes or 0)
    return [*found, plan]
