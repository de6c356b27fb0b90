"""The smallest pool within an overhead."""
from __future__ import annotations

from dataclasses import replace
from typing import Optional

from ..graph.decisions import decisions_of
from ..graph.types import Graph
from ..plan.plan import Plan
from .mip.bounds import minimum_peak_bound
from .mip.problem import reduce_graph
from .options import Options
from .result import build_plan
from .search.starts import baseline_schedules
from .strategy import STRATEGY


def pool_and_workspace(plan: Plan) -> int:
    """Bytes that compete for a pool budget."""
    return plan.pool_bytes + plan.fixed_bytes.get("workspace", 0)


def least_memory(graph: Graph, budget_bytes: Optional[int], options: Options) -> Plan:
    """The smallest plan within ``options.max_overhead``: the local search's, or a baseline's.

    Its bound is zero: it would be a bound on time at a budget that was not asked for.
    """
    from .search.local import solve
    plan = solve(graph, budget_bytes, replace(options, effort=STRATEGY.least_work * options.effort))
    plan = _smaller_baseline(plan, budget_bytes, options)
    reduced = reduce_graph(graph, options.variants, options.keep)
    layers = 0 if options.storage in ("arena", "live") else STRATEGY.layers
    smallest = minimum_peak_bound(reduced, layers).bytes
    total = smallest + sum(plan.fixed_bytes.values())
    return replace(plan, method="auto", minimum_total_bytes=min(total, plan.total_bytes))


def _smaller_baseline(plan: Plan, budget_bytes: Optional[int], options: Options) -> Plan:
    """The plan, or one that grew out of another method's smaller one within the overhead."""
    from .search.local import solve
    most = float("inf") if options.max_overhead is None else options.max_overhead + 1e-9
    best = plan
    schedules = list(baseline_schedules(plan.graph, options, sorted({(), plan.schedule.variants})))
    if plan.schedule.variants:  # with more to choose from, a search may end with larger plans
        plain = replace(options, variants="none", effort=STRATEGY.least_work * options.effort)
        schedules.append(solve(plan.graph, budget_bytes, plain).schedule)
    for schedule in schedules:
        found = build_plan(plan.graph, schedule, plan.method, options, budget_bytes)
        if found.overhead <= most and pool_and_workspace(found) < pool_and_workspace(best):
            best = found
    if best is plan:
        return plan
    warm = replace(options, warm_start=decisions_of(plan.graph, best.schedule),
                   warm_variants=best.schedule.variants)
    grown = solve(plan.graph, best.pool_bytes, warm)
    inside = grown.overhead <= most and pool_and_workspace(grown) <= pool_and_workspace(best)
    return grown if inside else best
