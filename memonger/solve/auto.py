"""The default method: a native search for the plan, programs for the proof, turns between them.

1. What fits needs no plan.
2. A few linear programs give a bound, and say at which ops to constrain live bytes
   (:mod:`memonger.solve.mip.bounds`), while the native search runs from its own seeds on another
   core (:mod:`memonger.solve.search.background`).
3. Most networks are chains of blocks. Where the best plan is not near the bound, the best plan of
   the chain (:mod:`memonger.solve.chain`) and a short native search from it come next, and a linear
   program with rows over spans of windows raises the bound. Where nothing fits, the smallest plans
   known come in, which do not depend on the budget (:mod:`memonger.solve.incumbent`).
4. While the best plan is not near the bound, turns follow. In each, a small 0/1 program over the
   constrained ops raises the bound and suggests a plan. The native search repairs that plan where
   it does not fit (:mod:`memonger.solve.refinement`). A longer native search runs beside it. Once
   programs change nothing any more, or miss the budget by far, two native searches run in a turn:
   one from the best plan, one from nothing, or both from the best where a chain's plan led to it.
   Where the plan of a tiny graph is still far from its bound then, longer programs and a longer
   search follow.
5. A time limit above the usual one buys rounds after that, each longer than the one before: a
   native search that crosses a population of plans (``plugins/core/crossover.cc``) beside a 0/1
   program over the ops where the best plan is at its limit. No round depends on the limit, so a
   longer search begins as a shorter one does, and never ends with a dearer plan or a lower bound.

Work is counted, not timed (:mod:`memonger.solve.effort`), and each turn waits for both of its
searches. So the same input gives the same plan on every machine. :mod:`memonger.solve.strategy`
tells what each constant is worth, and ``python -m benchmarks ablation`` what each part is. Without
HiGHS only the native search is left, with the knapsack bound.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Optional

from ..graph.schedule import expand
from ..graph.types import Graph
from ..plan.plan import Plan
from .mip import highs
from .mip.formulation import build
from .mip.rounding import schedule_of_point
from .options import USUAL_TIME_LIMIT_S, Options
from .refinement import Refinement
from .search.local import work_for
from .strategy import STRATEGY, Turn


def solve(graph: Graph, budget_bytes: Optional[int], options: Options) -> Plan:
    """Method "auto"; the signature of all solvers."""
    from .least_memory import least_memory
    if budget_bytes is None or options.objective == "memory":
        return least_memory(graph, budget_bytes, options)
    search = Refinement.start(graph, budget_bytes, options)
    more_s = options.time_limit_s - USUAL_TIME_LIMIT_S
    search.effort.limit_s = min(options.time_limit_s, USUAL_TIME_LIMIT_S)
    try:
        _search(search)
        if search.best is None and not search.interrupted:
            search.smallest_plan()
        if search.best is None and not search.interrupted and search.possible:
            # The plan that a call without a budget gives must not be refused as a budget.
            within = graph.forward_time_s / graph.time_s if graph.time_s > 0 else 0.0
            search.offer_least(least_memory(graph, None, replace(
                options, objective="memory", max_overhead=within)))
        if more_s > 0 and search.possible and not search.interrupted:
            search.effort.grant(more_s)
            _go_on(search)
    except KeyboardInterrupt:
        search.interrupted = True
    return search.plan("auto", budget_bytes)


def _search(search: Refinement) -> None:
    graph, groups = search.graph, len(search.reduced.size_bytes)
    work = int(work_for(graph, min(search.options.time_limit_s, USUAL_TIME_LIMIT_S))
               * search.options.effort)
    if not search.options.recompute:
        search.evaluate(expand(graph, {}))
    programs = search.options.bound and highs.available()
    with search.searching(int(STRATEGY.first_work * work)):
        if search.options.bound:
            _first_bound(search, groups)
    if search.interrupted or search.proven or not search.possible:
        return
    if not search.within(STRATEGY.chain_near):
        with search.searching(int(STRATEGY.chain_beside * work) if search.is_chain else 0):
            if programs:
                search.span_bound()
            search.follow_chain(int(STRATEGY.chain_search * work))
    if search.best is None and search.possible:
        search.smallest_plan()
    if search.proven or not search.possible:
        return
    if not programs:
        search.local_search(work, search.warm())
    elif groups > STRATEGY.integer_groups and not search.within(_target_gap(graph)):
        with search.searching(work):
            _round_linear(search, work // 3)
    _take_turns(search, work, programs and groups <= STRATEGY.integer_groups)
    if search.programs and len(graph.ops) <= STRATEGY.tiny_ops \
            and search.options.time_limit_s >= USUAL_TIME_LIMIT_S \
            and not search.within(STRATEGY.last_near) and not search.interrupted:
        _last_effort(search)


def _take_turns(search: Refinement, work: int, programs: bool) -> None:
    """Turns until the best plan is near the bound, or the work is spent."""
    num_ops = len(search.graph.ops)
    small = num_ops <= STRATEGY.small_ops
    kind = 2 if search.layers else 0 if small else 1
    search.max_checks = max(1, int(STRATEGY.checks[kind] * search.options.effort))
    search.gap = 1e-3 if search.layers else 1e-6
    search.target_gap = _target_gap(search.graph)
    search.step_gap = STRATEGY.small_gap if small and search.target_gap else search.target_gap
    search.patience = STRATEGY.patience if num_ops <= STRATEGY.tiny_ops else 1
    search.programs = STRATEGY.programs[kind] if programs else 0
    if search.programs and STRATEGY.pieces and num_ops <= STRATEGY.tiny_ops \
            and not search.layers:
        search.constrain_pieces(STRATEGY.pieces)
    factor = 1.0 if small else STRATEGY.turn_work_middle if num_ops <= STRATEGY.large_ops \
        else STRATEGY.turn_work_large
    for turn in STRATEGY.turns[STRATEGY.turns_without if search.chained else 0:]:
        if search.within(max(turn.near, search.target_gap)) or search.over:
            break
        _take(search, turn, int(factor * turn.work * work))
    if search.best is None:
        search.squeeze(search.programs)
    near = search.target_gap if num_ops <= STRATEGY.tiny_ops else STRATEGY.far
    while search.wants_program and not search.within(near):
        _prove(search)


def _go_on(search: Refinement) -> None:
    """Rounds for a limit above the usual one, while the next is paid for and the gap is open."""
    work = max(work_for(search.graph), int(STRATEGY.least_round_steps))
    peaks = STRATEGY.first_peaks
    while not search.within(search.target_gap) and search.effort.steps >= work \
            and not search.interrupted:
        crosses = search.best is not None
        with search.searching(work, search.warm(), crosses):
            if search.programs and search.best is not None:
                search.bound_at_peaks(peaks, work / STRATEGY.steps_per_s)
            else:
                search.local_search(work, search.warm(), crosses)
        work, peaks = int(STRATEGY.round_growth * work), peaks + STRATEGY.more_peaks
    if not search.within(search.target_gap):
        search.effort.spend(search.effort.left_s)  # no round fits into the rest


def _take(search: Refinement, turn: Turn, work: int) -> None:
    start = search.warm() if turn.from_best else None
    if search.near_miss is not None and not search.wants_program:
        start, search.near_miss = search.near_miss[1], None
    with search.searching(work, start):
        if search.wants_program:
            _prove(search)
        if not search.wants_program and search.best is not None and not search.within(turn.near):
            start = None if turn.from_best and not search.chained else search.warm()
            search.local_search(work, start, heat=STRATEGY.chain_heat if search.chained else 0.0)


def _prove(search: Refinement) -> None:
    """One 0/1 program; patience ends where it changed neither bound nor plan by enough."""
    bound_s, best = search.bound.extra_s, search.best
    share = STRATEGY.share_small if len(search.graph.ops) <= STRATEGY.small_ops else STRATEGY.share
    search.refine(1, share, int(STRATEGY.mend_work * work_for(search.graph)))
    least_s = STRATEGY.worth * search.graph.time_s
    news = search.bound.extra_s - bound_s > least_s or search.best is not None and (
        best is None or best.extra_s - search.best.extra_s > least_s)
    search.in_vain = 0 if news else search.in_vain + 1


def _last_effort(search: Refinement) -> None:
    """More 0/1 programs, on from the ops that gave the bound, then a search that crosses plans."""
    if search.bound.constrained:
        search.effort.grant(STRATEGY.proof_s * search.options.effort)
        search.constrained, search.max_checks = list(search.bound.constrained), 0
        search.exhausted = False
        while not (search.within(STRATEGY.last_near) or search.exhausted or search.over):
            _prove(search)
    if search.best is not None and not search.within(STRATEGY.last_near) \
            and not search.interrupted:
        work = int(STRATEGY.last_steps * search.options.effort)
        search.effort.grant(work / STRATEGY.steps_per_s)
        search.local_search(work, search.warm(), True)


def _target_gap(graph: Graph) -> float:
    """How near to the bound is near enough, as a share of the step time."""
    if graph.pools == "live" or len(graph.ops) <= STRATEGY.tiny_ops:
        return 0.0  # compared with proven optima, or quickly proven, to the last digit
    small = len(graph.ops) <= STRATEGY.small_ops
    return STRATEGY.target_gap if small else STRATEGY.target_gap_large


def _first_bound(search: Refinement, groups: int) -> None:
    few, some, one = STRATEGY.bound_rounds
    rounds = few if groups <= 500 else some if groups <= 1500 else one
    search.first_bound(rounds, None if groups <= STRATEGY.layer_groups else 0)


def _round_linear(search: Refinement, work: int) -> None:
    """One linear program, rounded and mended; for graphs too large for 0/1 programs."""
    if not search.constrained:
        return
    program = build(search.reduced, search.constrained, search.live_budget_bytes)
    solution = highs.solve_linear(program, search.effort)
    if solution.values is None:
        return
    for threshold in (0.9, 0.5):
        schedule = schedule_of_point(program, search.reduced, solution.values, threshold)
        if schedule is not None:
            search.evaluate(schedule)
    if search.native and schedule is not None:
        search.local_search(work, search.native.decisions_of(schedule))
