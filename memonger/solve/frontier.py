"""Other questions than "least time within a budget", answered by asking that one repeatedly.

* :func:`least_memory`: the smallest pool within an overhead, by bisection;
* :func:`sweep`: plans for many budgets, made monotone: more memory never costs more time;
* :func:`knee`: the plan from which on memory gets expensive.
"""
from __future__ import annotations

import time
from dataclasses import replace
from typing import Callable, List, Optional, Sequence, Tuple

from ..decisions import decisions_of
from ..graph import Graph
from ..plan import Plan, Status
from ..workspace import workspace_bytes
from .bound import minimum_peak_bound
from .build import as_asked, build_plan
from .options import Options
from .reduce import reduce_graph
from .siblings import sibling_schedules

Solver = Callable[[Graph, Optional[int], Options], Plan]

#: How much more work than one budget the least memory is worth.
_LEAST = 4
#: Halvings of the interval between the smallest conceivable and the unplanned pool.
_PROBES = 12


def pool_and_workspace(plan: Plan) -> int:
    """Bytes that compete for a pool budget."""
    return plan.pool_bytes + plan.fixed_bytes.get("workspace", 0)


def least_memory(graph: Graph, budget_bytes: Optional[int], options: Options, solver: Solver,
                 method: str) -> Plan:
    """The smallest pool that a solver reaches within ``options.max_overhead``.

    Parameters
    ----------
    graph : Graph
    budget_bytes : int or None
        Upper limit of the pool; None for no limit.
    options : Options
    solver : callable
        Asked for the least time at each budget tried.
    method : str
        Name for the record.

    Returns
    -------
    Plan
        Its bound is zero: it is a bound on time at a budget that was not asked for.
    """
    started = time.perf_counter()
    space = workspace_bytes(graph)
    best = build_plan(graph, as_asked(graph, options), method, options, budget_bytes,
                      Status.FEASIBLE)
    reduced = reduce_graph(graph, options.variants, options.keep)
    low = minimum_peak_bound(graph, reduced=reduced).bytes
    high = best.pool_bytes
    limit = float("inf") if options.max_overhead is None else options.max_overhead + 1e-9
    target = low if options.max_overhead is None else (low + high) // 2
    step = replace(options, objective="time", bound=False,
                   time_limit_s=options.time_limit_s / 6)
    for _ in range(_PROBES):
        if time.perf_counter() - started > options.time_limit_s or high - low <= high // 500:
            break
        found = solver(graph, target, step)
        inside = found.overhead <= limit
        if inside and pool_and_workspace(found) < pool_and_workspace(best):
            best = found
            high = min(high, found.pool_bytes)
        if not inside or pool_and_workspace(found) > target + space:
            low = max(low, target + 1)
        if low >= high:
            break
        target = (low + high) // 2
    late = time.perf_counter() - started > options.time_limit_s
    total = None if budget_bytes is None else best.budget_bytes
    if budget_bytes is not None:
        total = budget_bytes + sum(options.fixed_bytes.values())
    return replace(best, method=method, budget_bytes=total, bound=0.0,
                   status=Status.TIME_LIMIT if late else Status.FEASIBLE)


def least_memory_local(graph: Graph, budget_bytes: Optional[int], options: Options) -> Plan:
    """As :func:`least_memory`, by the local search, which does its own bisection."""
    from .local import solve
    plan = solve(graph, budget_bytes, replace(options, effort=_LEAST * options.effort))
    plan = _smaller_sibling(plan, budget_bytes, options)
    reduced = reduce_graph(graph, options.variants, options.keep)
    smallest = minimum_peak_bound(graph, reduced=reduced,
                                  layers=0 if options.storage in ("arena", "live") else 10).bytes
    total = smallest + sum(plan.fixed_bytes.values())
    return replace(plan, method="auto", minimum_total_bytes=min(total, plan.total_bytes))


def _smaller_sibling(plan: Plan, budget_bytes: Optional[int], options: Options) -> Plan:
    """The plan, or one that grew out of another method's smaller one within the overhead."""
    from .local import solve
    most = float("inf") if options.max_overhead is None else options.max_overhead + 1e-9
    best = plan
    for schedule in sibling_schedules(plan.graph, replace(
            options, time_limit_s=options.time_limit_s / 2),
            sorted({(), plan.schedule.variants})):
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


def sweep(graph: Graph, budgets_bytes: Sequence[int], options: Options,
          solver: Solver) -> List[Plan]:
    """One plan for each budget, none dominated by another.

    Parameters
    ----------
    graph : Graph
    budgets_bytes : sequence of int
        Budgets of the pool, in any order; those that no plan fits are left out.
    options : Options
    solver : callable
        As :func:`memonger.solve.auto.solve`.

    Returns
    -------
    list of Plan
        By increasing pool; each is faster than all that take less memory.
    """
    found: List[Plan] = []
    for budget in sorted(set(budgets_bytes)):
        plan = solver(graph, budget, options)
        if plan.pool_bytes + plan.fixed_bytes.get("workspace", 0) \
                <= budget + workspace_bytes(graph):
            found.append(plan)
    return envelope(found)


def envelope(plans: Sequence[Plan]) -> List[Plan]:
    """Plans by increasing memory, without those that another beats in memory and in time."""
    kept: List[Plan] = []
    for plan in sorted(plans, key=lambda p: (pool_and_workspace(p), p.overhead)):
        if not kept or plan.overhead < kept[-1].overhead - 1e-12:
            kept.append(plan)
    return kept


def knee(plans: Sequence[Plan]) -> int:
    """Index of the plan farthest below the line between the frontier's two ends.

    -1 for fewer than three plans.
    """
    if len(plans) < 3:
        return -1
    points: List[Tuple[float, float]] = [(float(pool_and_workspace(p)), p.overhead)
                                         for p in plans]
    (left, top), (right, bottom) = points[0], points[-1]
    if right <= left or top <= bottom:
        return -1
    depth = [(1 - (x - left) / (right - left)) - (y - bottom) / (top - bottom)
             for x, y in points]
    best = max(range(len(points)), key=lambda i: (depth[i], -i))
    return best if 0 < best < len(points) - 1 else -1
