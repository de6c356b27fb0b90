"""The smallest pool within an overhead."""
from __future__ import annotations

from dataclasses import replace
from typing import Iterator, Optional

from ..graph.decisions import decisions_of
from ..graph.schedule import Schedule
from ..graph.types import Graph
from ..plan.plan import Plan, Status
from .chain.plans import ChainPlans
from .effort import Effort
from .mip.bounds import layers_of
from .mip.least_bytes import least_outside_pool_bytes, minimum_peak_bound
from .mip.problem import reduce_graph
from .options import Options
from .result import BY_SCHEDULE, build_plan, total_bytes
from .search import local
from .search.local import LEAST_WORK
from .search.native import NativeSearch
from .search.starts import baseline_schedules

#: Up to this many values the bound on the smallest peak gets a 0/1 program.
_PEAK_GROUPS = 6000


def _bytes_by_schedule(plan: Plan) -> int:
    """What of a plan's bytes depends on its schedule."""
    return plan.pool_bytes + sum(plan.fixed_bytes.get(name, 0) for name in BY_SCHEDULE)


def least_memory(graph: Graph, budget_bytes: Optional[int], options: Options) -> Plan:
    """The smallest plan within ``options.max_overhead``: the local search's, or a baseline's.

    Its bound is zero: it would be a bound on time at a budget that was not asked for.
    """
    more = replace(options, effort=LEAST_WORK * options.effort)
    plan = local.solve(graph, budget_bytes, more)
    if plan.status is not Status.INTERRUPTED:
        plan = _smaller_baseline(plan, budget_bytes, options, more)
    reduced = reduce_graph(graph, options.variants, options.keep)
    peak = minimum_peak_bound(reduced, layers_of(options.storage), _PEAK_GROUPS)
    smallest = total_bytes(
        options, peak.bytes + least_outside_pool_bytes(graph, options.variants))
    return replace(plan, method="auto", minimum_total_bytes=min(smallest, plan.total_bytes))


def _smaller_baseline(plan: Plan, budget_bytes: Optional[int], options: Options,
                      more: Options) -> Plan:
    """The plan, or one that grew out of another method's smaller one within the overhead."""
    most = float("inf") if options.max_overhead is None else options.max_overhead + 1e-9
    best = plan
    try:
        for schedule in _other_schedules(plan, budget_bytes, options, more):
            candidate = build_plan(plan.graph, schedule, plan.method, options, budget_bytes)
            if candidate.overhead <= most and \
                    _bytes_by_schedule(candidate) < _bytes_by_schedule(best):
                best = candidate
    except KeyboardInterrupt:
        return replace(best, status=Status.INTERRUPTED)
    if best is plan:
        return plan
    warm = replace(options, warm_start=decisions_of(plan.graph, best.schedule),
                   warm_variants=best.schedule.variants)
    grown = local.solve(plan.graph, best.pool_bytes, warm)
    inside = grown.overhead <= most and _bytes_by_schedule(grown) <= _bytes_by_schedule(best)
    if inside or grown.status is not Status.INTERRUPTED:
        return grown if inside else best
    return replace(best, status=grown.status)


def _other_schedules(plan: Plan, budget_bytes: Optional[int], options: Options,
                     more: Options) -> Iterator[Schedule]:
    """What other methods do, and with variants in use the smallest plan without any."""
    graph, variants = plan.graph, plan.schedule.variants
    chain = ChainPlans.of(graph, more, NativeSearch(graph, more), Effort(more.time_limit_s))
    smallest = chain.smallest() if chain else None
    if smallest is not None:
        yield smallest.schedule
    yield from baseline_schedules(graph, more, [variants])
    if variants:  # with more to choose from, a search may end with larger plans
        plain = least_memory(graph, budget_bytes, replace(options, variants="none"))
        yield plain.schedule
        if plain.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
