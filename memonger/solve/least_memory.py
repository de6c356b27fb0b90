"""The smallest pool within an overhead."""
from __future__ import annotations

from dataclasses import replace
from typing import Callable, Iterator, Optional

from ..graph.decisions import decisions_of
from ..graph.schedule import Schedule
from ..graph.types import Graph
from ..memory.host import keeps_host
from ..plans.plan import Plan, Status
from . import fewer_variants
from .chain.plans import ChainPlans, boundaries_of
from .effort import Effort, steps_per_s
from .mip.least_bytes import least_outside_pool_bytes, minimum_peak_bound
from .mip.problem import reduce_graph
from .options import Options
from .result import BY_SCHEDULE, build_plan, total_bytes
from .search import local
from .search.local import LEAST_RUNS, LEAST_WORK, work_for
from .search.native import NativeSearch
from .search.starts import baseline_schedules
from .search.walks import Walks

#: Up to this many values the bound on the smallest peak gets a 0/1 program.
_PEAK_GROUPS = 6000
#: The share of the time limit for the native search.
_NATIVE_SHARE = 0.4
#: The share of the time limit for the simpler methods.
_BASELINES_SHARE = 0.1
#: The share of the time limit for all of it once more without variants.
_PLAIN_SHARE = 0.3
#: The share of what these leave that the bound may take.
_PEAK_SHARE = 0.5
#: The least share of the time limit for what grows out of a baseline's plan.
_GROWN_SHARE = 0.1
#: The first step down of the budget, as a share of the pool's bytes.
_SQUEEZE = 0.1
#: The last step down of the budget, as a share of the pool's bytes.
_LEAST_SQUEEZE = 0.01
#: The least share of the time limit that a search for a smaller pool gets.
_SQUEEZE_SHARE = 0.1
#: Rows that such a search leaves out, for they say what a refusal takes.
_NO_SMALLEST = fewer_variants.WITHOUT | {"smallest plan"}


def _bytes_by_schedule(plan: Plan) -> int:
    """What of a plan's bytes depends on its schedule."""
    return plan.pool_bytes + sum(plan.fixed_bytes.get(name, 0) for name in BY_SCHEDULE)


def _most_overhead(options: Options) -> float:
    """The overhead that a plan may have, with room for rounding."""
    return float("inf") if options.max_overhead is None else options.max_overhead + 1e-9


def least_memory(graph: Graph, budget_bytes: Optional[int], options: Options,
                 solve: Optional[Callable[[Graph, int, Options], Plan]] = None) -> Plan:
    """The smallest plan within ``options.max_overhead``, with the least that any plan takes.

    Its bound is zero: it would be a bound on time at a budget that was not asked for.

    ``solve``: searches for the least time within a budget, which find smaller plans where a graph
    is no chain.
    """
    effort = Effort(options.time_limit_s, options.account)
    plan = searched_least_memory(graph, budget_bytes, replace(options, account=effort))
    reduced = reduce_graph(graph, options.variants, options.keep)
    peak = minimum_peak_bound(reduced, _PEAK_GROUPS, effort.part(_PEAK_SHARE))
    if solve is not None and not boundaries_of(graph, options):
        plan = _squeezed(plan, peak.bytes, replace(options, account=effort), effort, solve)
    least_bytes = total_bytes(
        options, peak.bytes + least_outside_pool_bytes(graph, options.variants))
    return plan.changed(method="auto", minimum_total_bytes=min(least_bytes, plan.total_bytes))


def _squeezed(plan: Plan, least_bytes: int, options: Options, effort: Effort,
              solve: Callable[[Graph, int, Options], Plan]) -> Plan:
    """Smaller plans as long as searches for a little less find them and there is work for them.

    ``least_bytes``: no pool is smaller.
    """
    most = _most_overhead(options)
    step = _SQUEEZE
    while step >= _LEAST_SQUEEZE and plan.status is not Status.INTERRUPTED \
            and effort.left_s > _SQUEEZE_SHARE * options.time_limit_s:
        room = plan.pool_bytes - least_bytes
        aim = plan.pool_bytes - int(min(step * plan.pool_bytes, room / 2))
        if plan.pool_bytes - aim < _LEAST_SQUEEZE * plan.pool_bytes:
            break
        tried = solve(plan.graph, aim, replace(
            options, objective="time", max_overhead=None, bound=False, given=plan.schedule,
            time_limit_s=max(_SQUEEZE_SHARE * options.time_limit_s, 0.3 * effort.left_s),
            without=options.without | _NO_SMALLEST))
        if tried.pool_bytes <= aim and tried.overhead <= most and \
                _bytes_by_schedule(tried) <= _bytes_by_schedule(plan):
            plan = plan.changed(schedule=tried.schedule, planned=tried.planned,
                                status=tried.status if tried.status is Status.INTERRUPTED
                                else plan.status)
        elif tried.status is Status.INTERRUPTED:
            return plan.changed(status=tried.status)
        else:
            step /= 2
    return plan


def searched_least_memory(graph: Graph, budget_bytes: Optional[int], options: Options) -> Plan:
    """The plan of :func:`least_memory`: the local search's, or what grew out of a baseline's."""
    effort = Effort(options.time_limit_s, options.account)
    options = replace(options, account=effort)
    more = replace(options, effort=options.effort * _work_that_fits(graph, options))
    plan = local.solve(graph, budget_bytes, more)
    if plan.status is Status.INTERRUPTED:
        return plan
    return _smaller_baseline(plan, budget_bytes, options, more, effort)


def _work_that_fits(graph: Graph, options: Options) -> float:
    """The work of the native search, as a multiple of a search for one budget."""
    one_s = work_for(graph, options.time_limit_s) * options.effort / steps_per_s(len(graph.ops))
    share = _NATIVE_SHARE + (_PLAIN_SHARE if options.variants == "none" else 0.0)
    return min(LEAST_WORK, share * options.time_limit_s / (LEAST_RUNS * one_s))


def _smaller_baseline(plan: Plan, budget_bytes: Optional[int], options: Options,
                      more: Options, effort: Effort) -> Plan:
    """The plan, or one that grew out of another method's smaller one within the overhead."""
    most = _most_overhead(options)
    time_s = plan.graph.time_s
    # Without times every schedule is within any overhead.
    most_extra_s = most * time_s if time_s > 0 else float("inf")
    best, walks = plan, Walks(plan.graph, options)
    try:
        for schedule in _other_schedules(plan, budget_bytes, options, more, most_extra_s):
            schedule = walks.as_asked(schedule)
            if schedule.time_s(plan.graph) - time_s <= most_extra_s \
                    and keeps_host(plan.graph, schedule, options.host_budget_bytes):
                candidate = build_plan(plan.graph, schedule, plan.method, options, budget_bytes)
                if _bytes_by_schedule(candidate) < _bytes_by_schedule(best):
                    best = candidate
    except KeyboardInterrupt:
        return best.changed(status=Status.INTERRUPTED)
    if best is plan:
        return plan
    warm = replace(options, warm_start=decisions_of(plan.graph, best.schedule),
                   warm_variants=best.schedule.variants,
                   time_limit_s=max(effort.left_s, _GROWN_SHARE * options.time_limit_s))
    grown = local.solve(plan.graph, best.pool_bytes, warm)
    inside = grown.overhead <= most and _bytes_by_schedule(grown) <= _bytes_by_schedule(best)
    if inside or grown.status is not Status.INTERRUPTED:
        return grown if inside else best
    return best.changed(status=grown.status)


def _other_schedules(plan: Plan, budget_bytes: Optional[int], options: Options,
                     more: Options, most_extra_s: float) -> Iterator[Schedule]:
    """What other methods do, and with variants in use the smallest plan without any."""
    graph, variants = plan.graph, plan.schedule.variants
    assert options.account is not None
    chain = None
    # The usual effort where there is too little left for more.
    for asked in (more, options) if boundaries_of(graph, options) else ():
        chain = chain or ChainPlans.of(graph, asked, NativeSearch(graph, asked), options.account)
    smallest = chain.smallest(plan.pool_bytes, most_extra_s) if chain else None
    if smallest is not None:
        yield smallest.schedule
    yield from baseline_schedules(graph, replace(
        more, time_limit_s=_BASELINES_SHARE * options.time_limit_s), [variants])
    if variants:  # with more to choose from, a search may end with larger plans
        plain = searched_least_memory(graph, budget_bytes, replace(
            options, variants="none", time_limit_s=_PLAIN_SHARE * options.time_limit_s))
        yield plain.schedule
        if plain.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
