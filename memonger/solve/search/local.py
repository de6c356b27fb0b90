"""The fast planner: local search on exact simulations, in C++.

Decisions are made for each op and each gap between two uses of its value (keep, drop until
something recomputes it, drop after every op) and for each variant. ``plugins/core`` simulates the
schedule that they give and searches: seeds (cheap ops by a threshold on time per byte, and the
segments of Chen et al. 2016), greedy repair, pruning, iterated local search (Lourenco,
Martin and Stuetzle 2003) and simulated annealing, which also moves checkpoints and decides
stretches of the forward pass at once, and whose penalty for bytes above the budget adjusts itself;
longer searches of :mod:`memonger.solve.auto` also cross plans of a population. Groups of like
values and variants of repeated blocks are decided together first (``search/fit_groups.cc``). Where
the pool of a storage assignment has to fit, not only the peak of live bytes, the live budget is
lowered until it does, and single changes are checked against the pool itself.

Not proven optimal; on graphs of a few hundred ops it reaches every optimum that has been proven
(see docs). Work grows with n log n; results depend on graph, options and seed, not on the clock.
"""
from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import List, Optional

from ...graph.in_use import graph_in_use
from ...graph.schedule import Schedule, expand_in_part
from ...graph.types import Graph
from ...graph.working_set import working_bytes
from ...memory.workspace import outside_pool_bytes
from ...plans.plan import Plan, Progress, Status
from ..effort import STEPS_PER_S, Effort, steps_per_s
from ..options import USUAL_TIME_LIMIT_S, Options
from ..result import build_plan, total_bytes
from .decisions import INTERRUPTED, TIME_LIMIT, Decisions, SearchResult
from .native import NativeSearch, Poll

#: Simulated steps of one search in a graph of 700 ops. Four times as many win 0.1 % at deep cuts
#: (ResNet-152 and DenseNet-121 at a fifth of their pools).
_STEPS_700_OPS = 12e6
#: Smaller graphs get the work of this many ops.
LEAST_OPS = 350
#: The same of graphs in units of other planners: their plans are compared with proven optima.
_LEAST_OPS_UNITS = 2800
#: The share of the work that finds plans for easy budgets.
FIRST_SHARE = 0.4
#: Work for the least memory, as a multiple of a search for one budget: it tries several.
LEAST_WORK = 4.0
#: How many budgets are tried within an overhead.
_PROBES = 14
#: The work of all of them, as a multiple of a search for one budget.
LEAST_RUNS = 2.4
#: At any cost: the share of the last plan's bytes that the next one may take on the way down.
_STEP_DOWN = 0.75
#: At any cost: how many descents follow, each from decisions near the smallest plan.
_DESCENTS = 8
#: The work of a descent, as a multiple of a search for one budget; below ``LEAST_OPS`` ops their
#: share of it.
_DESCENT_WORK = 2.5
#: A budget above everything, in bytes.
_ENDLESS = 2 ** 62


def work_for(graph: Graph, time_limit_s: float = USUAL_TIME_LIMIT_S) -> int:
    """Steps to simulate for a graph: about a quarter of a second for 700 ops, n log n beyond 3,000.

    What a time limit above the usual one adds is spent; a low one leaves out what it cannot hold.
    """
    count = max(len(graph.ops), least_ops(graph))
    smaller = min(count, 3000)
    work = _STEPS_700_OPS * smaller / 700
    if count > 3000:
        work *= count * math.log(count) / (3000 * math.log(3000))
    more_s = time_limit_s - USUAL_TIME_LIMIT_S
    return int(min(work + STEPS_PER_S * max(0.0, more_s),
                   STEPS_PER_S * time_limit_s))


def least_ops(graph: Graph) -> int:
    """Graphs of fewer ops get the work of so many."""
    return _LEAST_OPS_UNITS if graph.pools == "units" else LEAST_OPS


def first_search_s(graph: Graph) -> float:
    """Counted seconds of a search that finds plans for easy budgets."""
    return FIRST_SHARE * work_for(graph) / steps_per_s(len(graph.ops))


@dataclass
class _Call:
    """One call of :func:`solve`: the problem, the clock and the best so far."""

    graph: Graph
    options: Options
    native: NativeSearch
    started_s: float
    stop: int = 0
    phase: str = "searching"
    effort: Effort = field(init=False)

    def __post_init__(self) -> None:
        # Each run takes more work with more effort; as many must fit.
        more = min(max(1.0, self.options.effort), LEAST_WORK)
        self.effort = Effort(self.options.time_limit_s * more, self.options.account,
                             len(self.graph.ops), self.options.storage)

    def run(self, budget_bytes: int, share: float, warm: Optional[Decisions],
            seed: int = 0, smallest: bool = False) -> SearchResult:
        """Search with a budget for pool, workspace and objects, and a share of the work."""
        options = self.options
        work = work_for(self.graph, options.time_limit_s)
        steps = min(int(work * options.effort * share), self.effort.steps)
        self.effort.spend(self.effort.seconds(steps))
        answer = self.native.search(
            budget_bytes, steps, max(self.effort.clock_s, 0.01),
            options.seed + seed, warm, self.poll(), smallest=smallest)
        self.stop = max(self.stop, answer.stop)
        return answer

    def poll(self) -> Poll:
        """Passes the search's news on to ``options.progress``, ten times a second."""
        base_s = self.graph.time_s
        next_s = [0.0]

        def call(cost_s: Optional[float], size_bytes: Optional[int]) -> None:
            elapsed_s = time.perf_counter() - self.started_s
            if self.options.progress is None or elapsed_s < next_s[0]:
                return
            next_s[0] = elapsed_s + 0.1
            overhead = None if cost_s is None or base_s <= 0 else cost_s / base_s - 1
            total = None if size_bytes is None else total_bytes(self.options, size_bytes)
            self.options.progress(Progress(self.phase, elapsed_s, total, overhead,
                                           own_units=self.graph.own_units))
        return call

    @property
    def stopped(self) -> bool:
        return self.stop == INTERRUPTED or self.effort.steps <= 0

    def status(self) -> Status:
        if self.stop == INTERRUPTED:
            return Status.INTERRUPTED
        late = self.stop == TIME_LIMIT or self.effort.steps <= 0
        return Status.TIME_LIMIT if late else Status.FEASIBLE


def solve(graph: Graph, budget_bytes: Optional[int], options: Options) -> Plan:
    """The signature of all solvers; see :func:`memonger.solve.solve`.

    When nothing fits, the plan returned is the one with the smallest pool.
    """
    search = _Call(graph, options, NativeSearch(graph, options), time.perf_counter())
    warm = None
    if options.warm_start is not None:
        in_use = graph_in_use(graph, Schedule((), options.warm_variants))
        warm = search.native.decisions_of(
            Schedule(expand_in_part(in_use, options.warm_start).steps, options.warm_variants))
    if budget_bytes is None or options.objective == "memory":
        best = _least_memory(search, budget_bytes, warm) if options.max_overhead is not None \
            else _descend(search, warm)
    else:
        # The pool was allotted beside workspace and objects of the unplanned step.
        limit_bytes = budget_bytes + outside_pool_bytes(graph)
        best = search.run(limit_bytes, 1.0, warm)
        if not best.feasible and not search.stopped:
            search.phase = "searching for the least memory"
            best = _descend(search, best.decisions, stop_below=limit_bytes)
            if best.feasible and not search.stopped:
                search.phase = "searching"
                better = search.run(limit_bytes, 1.0, best.decisions)
                best = better if better.feasible else best
    return build_plan(graph, best.schedule, "local", options, budget_bytes, search.status())


def _size(schedule: SearchResult) -> int:
    """Bytes on the device; endless for what the host cannot hold."""
    return _ENDLESS if schedule.above_host else schedule.pool_bytes + schedule.outside_pool_bytes


def _descend(search: _Call, warm: Optional[Decisions], stop_below: int = 0) -> SearchResult:
    """The least memory at any cost, by annealing whose budget falls with each plan that fits it.

    It starts from the best simple plan, from what searches for less and less make of it, and from
    ``warm`` or the unplanned step; again from the one that led furthest; then it goes on from the
    smallest plan. ``stop_below`` ends it at the first plan of at most that many bytes.
    """
    aim = max(working_bytes(search.graph, op) for op in search.graph.ops)
    share = min(1.0, len(search.graph.ops) / LEAST_OPS)
    best = search.run(max(aim, stop_below), share, warm)
    starts: List[Optional[Decisions]] = [best.decisions, warm]
    while not search.stopped and _size(best) > stop_below:
        smaller = search.run(int(_STEP_DOWN * _size(best)), share / 2, best.decisions)
        if _size(smaller) >= _size(best):
            break
        best = smaller
    starts.append(best.decisions)
    sizes: List[int] = []
    for number in range(_DESCENTS):
        if search.stopped or _size(best) <= stop_below:
            break
        start: Optional[Decisions] = best.decisions
        if number < len(starts):
            start = starts[number]
        elif number == len(starts):
            start = starts[sizes.index(min(sizes))]
        smaller = search.run(_size(best), _DESCENT_WORK * share, start, number, smallest=True)
        sizes.append(_size(smaller))
        best = min(best, smaller, key=_size)
    return _same_bytes_in_less_time(search, best)


def _least_memory(search: _Call, budget_bytes: Optional[int],
                  warm: Optional[Decisions]) -> SearchResult:
    """Bisection on the budget: the smallest at which a plan within the overhead is found."""
    options = search.options
    most_s = search.graph.time_s * (1 + (options.max_overhead or 0.0)) * (1 + 1e-12)
    start = search.native.evaluate(search.native.unplanned())
    if options.recompute or start is None:
        start = search.run(_ENDLESS, 1.0 / _PROBES, None)
    best, low, high = start, 0, _size(start)
    ceiling = high if budget_bytes is None else min(
        high, budget_bytes + outside_pool_bytes(search.graph))
    target = min(ceiling, high) if warm is not None and budget_bytes is not None else high // 2
    for _ in range(_PROBES):
        if search.stopped or high - low <= max(1, high // 1000):
            break
        candidate = search.run(target, 2.0 / _PROBES, warm if best is start else best.decisions)
        within = candidate.cost_s <= most_s
        if within and _size(candidate) < _size(best):
            best, high = candidate, _size(candidate)
        if not (candidate.feasible and within):
            low = max(low, target)
        target = (low + high) // 2
    return best if best is start else _same_bytes_in_less_time(search, best)


def _same_bytes_in_less_time(search: _Call, best: SearchResult) -> SearchResult:
    if search.stopped:
        return best
    faster = search.run(_size(best), 0.3, best.decisions)
    return faster if faster.feasible and faster.cost_s < best.cost_s else best
