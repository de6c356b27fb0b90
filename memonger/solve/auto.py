"""The default method: local search for the answer, the relaxation for the proof.

1. What fits needs no plan.
2. A few linear programs give a bound, and say which ops to measure (:mod:`.bound`), while the
   native local search runs from its own seeds on another core (:mod:`.local`, :mod:`.beside`).
3. While the best plan is not near the bound, turns follow. In each, a small 0/1 program over the
   measured ops raises the bound and suggests a plan, which the local search mends where it does
   not fit (:mod:`.milp`); beside it runs a longer native search. Once programs change nothing any
   more, two native searches run in a turn, on from the best plan and anew. Two in three of the
   searches anew leave out variants that are not exact (:mod:`.cores`); so does the very first
   program, which is several times easier then, and whose plan the one with them improves on.
   Programs count no bytes between the measured ops. At deep cuts of networks that are not small
   their plans therefore miss the budget by far. The linear program, rounded, tells that in
   advance; then there is one program, for the bound, and the turns are for the native search.
4. A time limit above the usual one buys further searches with other random numbers, until the
   plan is within a thousandth of the bound: anew, and by crossing a population of plans in
   which the best is one (``plugins/core/breed.cc``).

Work is counted, not timed: simulated steps, rounds, the solver's own checks; and whoever works
beside somebody else is waited for. So the same input gives the same plan, unless the time limit
strikes. Beyond a few thousand values step 3 works with one linear program, and the counts grow
with n log n. Without HiGHS only the local search is left, with the knapsack bound and step 4.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Optional, Set, Tuple

from ..errors import SolverUnavailable
from ..graph import Graph
from ..plan import Plan
from ..schedule import expand
from . import highs
from .decode import schedule_of_point
from .milp import Refinement
from .options import USUAL_TIME_LIMIT_S, Options
from .relaxation import build
from .siblings import sibling_schedules

#: Values up to which 0/1 programs are solved, and up to which buffers are counted as wholes.
_INTEGER_ITEMS = 6000
_LAYER_ITEMS = 2500
#: Up to so many ops the longer searches may take many times the work of the first, or several.
_TINY_OPS, _SMALL_OPS, _LARGE_OPS = 250, 500, 1500
#: A plan within so much of the step time of the bound needs no more programs; a few times that in
#: graphs that are not small.
_ENOUGH = 0.001
#: Turns: the native search's work as a multiple of the usual, whether it goes on from the best
#: plan or starts anew, and how far from the bound, as a share of the step time, the best plan
#: must be for the turn to be worth its time.
_TURNS = ((2, False, 0.001), (4, True, 0.003), (4, True, 0.005), (8, True, 0.005),
          (8, True, 0.01), (8, True, 0.01))
#: The same in graphs from elsewhere, which are compared with the best values known.
_TURNS_ELSEWHERE = (_TURNS[0], (4, True, 0.002), *_TURNS[2:])
#: The same in graphs that are not small where programs are no guide to plans that fit: after the
#: first turn's program, which is for the bound, both searches start anew before one goes on.
_TURNS_UNGUIDED = ((4, False, 0.003), (4, False, 0.003), (12, True, 0.005), (12, True, 0.01))
#: Programs in a row that change nothing before no more are solved, in tiny graphs and those from
#: elsewhere, and what they must change, as a share of the step time.
_PATIENCE, _WORTH = 3, 0.0003
#: Share of the time that is left for a program, in small graphs, where it is soon solved, and where
#: programs are known to be good guides; work of mending a plan that misses the budget by far, as a
#: share of the usual.
_SHARE, _SHARE_SMALL, _SHARE_GUIDED, _MEND = 0.3, 0.5, 0.6, 0.03
#: A plan within so much of the bound is good enough in the usual time.
_FAR = 0.005
#: By how much of the step time a program's answer may miss its optimum in small graphs.
_SMALL_GAP = 0.0004
#: How much more work a budget is worth before it is refused.
_HARDER = 8
#: Steps to simulate in each search that a longer time limit buys.
_ANEW_WORK = 300e6
#: Share of the time limit in which none of them starts: the 0/1 programs come after them.
_FOR_PROOF = 0.25


def solve(graph: Graph, budget_bytes: Optional[int], options: Options) -> Plan:
    """Method "auto"; the signature of all solvers."""
    if budget_bytes is None or options.objective == "memory":
        from .frontier import least_memory
        return least_memory(graph, budget_bytes, options)
    search = Refinement.start(graph, budget_bytes, options)
    try:
        _search(search)
        if search.best is None and not search.interrupted:
            search.smallest_plan()
            _try_harder(search, budget_bytes)
    except KeyboardInterrupt:
        search.interrupted = True
    return search.plan("auto", budget_bytes)


def _search(search: Refinement) -> None:
    graph, items = search.graph, len(search.reduced.size_bytes)
    if not search.options.recompute:
        search.weigh(expand(graph, {}))
    work = _work(graph) * search.options.effort
    with search.searching(int(0.4 * work)):
        if search.options.bound:
            _first_bound(search, items)
    if search.bound.extra_s == float("inf"):
        search.smallest_plan()
    if search.proven:
        return
    if search.best is None:
        _ask_siblings(search, int(0.4 * work))
    if not search.options.bound or not highs.available():
        search.local_search(int(0.6 * work), search.warm())
        _search_anew(search)
        return
    if items <= _INTEGER_ITEMS:
        _take_turns(search, work)
    else:
        with search.searching(int(work)):
            _round_linear(search, int(0.3 * work))
        if not search.within(_FAR):
            search.local_search(int(work), search.warm())
        _search_anew(search)


def _take_turns(search: Refinement, work: float) -> None:
    """Each turn solves a 0/1 program, while the native search runs beside it.

    Where programs no longer help, the native search runs twice: on from the best, and anew.
    """
    num_ops, options = len(search.graph.ops), search.options
    small, elsewhere = num_ops <= _SMALL_OPS, search.graph.recompute_in_forward
    # Programs that count whole buffers are several times harder.
    rounds, checks = (2, 15) if search.layers else (4, 60) if not small else \
        (12, 200) if elsewhere else (12, 400)
    share = _SHARE_SMALL if small and not elsewhere else _SHARE
    search.max_checks = max(1, int(checks * options.effort))
    search.gap = 1e-3 if search.layers else 1e-6
    search.enough = _enough(search.graph)
    search.step_gap = 0.0 if not search.enough else _SMALL_GAP if small else search.enough
    patience = _PATIENCE if num_ops <= _TINY_OPS or elsewhere else 1
    factor = 1.0 if small else 0.4 if num_ops <= _LARGE_OPS else 0.125
    idle, turns = 0, list(_TURNS_ELSEWHERE if elsewhere else _TURNS)
    guided = small or elsewhere or search.guided()
    if not guided:
        turns = list(_TURNS_UNGUIDED)
    begun = False
    while turns:
        if begun and search.best is None and not search.interrupted:
            # No budget is refused that the plan with the least memory fits.
            search.smallest_plan()
        begun = True
        times, from_best, near = turns.pop(0)
        if search.within(max(near, search.enough)) or search.interrupted:
            break
        turn_work, start = int(factor * times * work), search.warm() if from_best else None
        if search.promising is not None and idle:
            start, search.promising = search.promising[1], None
        with search.searching(turn_work, start):
            if search.rounds < rounds and idle < patience and not search.settled:
                idle = 0 if _prove_first(search, work, share) else idle + 1
                if search.missed_far and not (small or elsewhere):
                    if guided:
                        guided, turns = False, list(_TURNS_UNGUIDED[1:])
                    idle = patience
                    continue
            if (idle or search.settled) and search.best is not None and not search.within(near):
                search.local_search(turn_work, search.warm() if guided and not from_best else None,
                                    breed=_breeds(search) and elsewhere)
    search.squeeze(rounds)
    near = search.enough
    if num_ops > _TINY_OPS and options.time_limit_s <= USUAL_TIME_LIMIT_S:
        near = _FAR

    def prove_on() -> None:
        nonlocal idle
        while search.rounds < rounds and idle < patience and not search.within(near) \
                and not search.settled and not search.interrupted:
            idle = 0 if _prove(search, work, share) else idle + 1
    if search.within(_ENOUGH):
        prove_on()  # likely to be over at once
    _search_anew(search)
    prove_on()


def _prove_first(search: Refinement, work: float, share: float) -> bool:
    """As :func:`_prove`; before the first program, one without variants that are not exact."""
    if not search.rounds and not search.missed_far \
            and search.refine_exact(share, int(_MEND * work)):
        share = _SHARE_GUIDED
    return _prove(search, work, share)


def _prove(search: Refinement, work: float, share: float) -> bool:
    """One 0/1 program; True when it changed the bound or the best plan by what is worth it."""
    bound_s, best = search.bound.extra_s, search.best
    search.refine(1, share=share, mend_work=int(_MEND * work))
    least_s = _WORTH * search.graph.time_s
    return search.bound.extra_s - bound_s > least_s or search.best is not None and (
        best is None or best.extra_s - search.best.extra_s > least_s)


def _enough(graph: Graph) -> float:
    """How near to the bound is near enough, as a share of the step time."""
    if graph.recompute_in_forward or len(graph.ops) <= _TINY_OPS:
        return 0.0  # quickly proven to the last digit
    if len(graph.ops) <= _SMALL_OPS:
        return _ENOUGH
    return 2.5 * _ENOUGH


def _breeds(search: Refinement) -> bool:
    """Whether searches may cross plans.

    Where anything may run at any time, stretches do not fit each other: annealing does better.
    """
    return any(op.is_backward for op in search.graph.ops)


def _search_anew(search: Refinement) -> None:
    """What a time limit above the usual one buys, counted in steps."""
    from .local import work_for
    options, usual = search.options, _work(search.graph)
    if search.best is None:
        return
    left = options.effort * (work_for(search.graph, options.time_limit_s) - usual)
    each = options.effort * max(usual, _ANEW_WORK)
    # Graphs from elsewhere are compared with proven optima, to the last digit.
    enough = 0.0 if search.graph.recompute_in_forward else _ENOUGH
    breeds = _breeds(search)
    turn = 0  # the search that goes on from the best anneals it in every other one
    while left >= each and not search.within(enough) and not search.interrupted \
            and search.core and search.left_s > _FOR_PROOF * options.time_limit_s:
        with search.searching(int(each), breed=breeds):
            search.local_search(int(each), search.warm(), breed=breeds and turn % 2 == 0)
        left -= each
        turn += 1


def _try_harder(search: Refinement, budget_bytes: int) -> None:
    """Before a budget is refused: the local search with most of what is left of the time."""
    from .local import solve as local_solve
    if search.left_s < 0.5 or not search.core:
        return
    # Tiny graphs have been searched through and through.
    harder = _HARDER * min(1.0, len(search.graph.ops) / _SMALL_OPS)
    plan = local_solve(search.graph, budget_bytes, replace(
        search.options, effort=harder * search.options.effort, bound=False,
        time_limit_s=search.left_s))
    search.weigh(plan.schedule)


def _ask_siblings(search: Refinement, work: int) -> None:
    """Plans of the other methods; what fits is improved on."""
    sets: Set[Tuple[int, ...]] = {()}
    if search.smallest is not None:
        sets.add(search.smallest.schedule.variants)
    options = replace(search.options, time_limit_s=max(0.1, search.left_s / 2))
    for schedule in sibling_schedules(search.graph, options, sorted(sets)):
        search.weigh(schedule)
    if search.best is not None:
        search.local_search(work, search.warm())


def _first_bound(search: Refinement, items: int) -> None:
    rounds = (5 if search.layers else 7) if items <= 500 else 3 if items <= 1500 else 1
    try:
        search.first_bound(search.left_s / 3, rounds, None if items <= _LAYER_ITEMS else 0)
    except SolverUnavailable:
        return


def _round_linear(search: Refinement, work: int) -> None:
    """One linear program, rounded and mended; for graphs too large for 0/1 programs."""
    if not search.measured or search.left_s < 1.0:
        return
    program = build(search.reduced, search.measured, search.live_budget_bytes)
    solution = highs.solve_linear(program, search.left_s / 3)
    if solution.values is None:
        return
    for threshold in (0.9, 0.5):
        schedule = schedule_of_point(program, search.reduced, solution.values, threshold)
        if schedule is not None:
            search.weigh(schedule)
    if search.core and schedule is not None:
        search.local_search(work, search.core.decisions_of(schedule))


def _work(graph: Graph) -> int:
    """Steps to simulate, as for the local search alone."""
    from .local import work_for
    return work_for(graph)
