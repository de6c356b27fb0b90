"""The exact method: 0/1 programs over few measured ops, refined until their plans fit.

Each round solves the program of :mod:`.relaxation` over the measured ops (lives, reruns and
variants 0 or 1, buffers whole), decodes the answer into a schedule and weighs that in exact
integers. The program's bound holds for every plan; when a schedule fits and costs no more than
the bound it is optimal, and when it does not fit, the op where it exceeds the budget most is
measured as well. With all ops measured the program is MONeT's and Checkmate's, but it seldom
comes to that: a handful of measured ops proves most optima.

The local search, where the native library is there, gives the first plan and mends decoded
schedules that do not fit. Cost: the worst case is exponential; ``time_limit_s`` ends it.
"""
from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from ..blocks import effective_ops
from ..errors import PluginMissing
from ..graph import Graph
from ..plan import Plan, Progress, Status
from ..schedule import Schedule, expand
from ..storage import plan_storage
from . import highs
from .beside import SearchBeside
from .bound import (
    Bound,
    integer_columns,
    minimum_peak_bound,
    overhead_bound,
    pool_room,
    whole_buffers_bound,
)
from .core import INTERRUPTED, Core, Found
from .cores import Cores
from .decode import schedule_of_point
from .options import Options
from .program import Program
from .reduce import Reduced, reduce_graph
from .relaxation import build
from .windows import point_of, worst_op

#: A decoded plan that takes no more than this share of the budget is worth more mending.
_NEAR_MISS, _MEND_NEAR = 1.06, 16
#: A plan within this share of the step time of the bound is mended, not planned anew.
_FAR = 0.005
#: Sizes of buffers told apart where storage is assigned to whole buffers.
LAYERS = 10
#: How often the solver may ask whether to go on for the bound of whole buffers beside an arena's.
_WHOLE_CHECKS = 200


@dataclass(frozen=True)
class Candidate:
    """A schedule with what it takes: time beyond the unplanned step, pool and workspace."""

    schedule: Schedule
    extra_s: float
    bytes: int


@dataclass
class Refinement:
    """One search by refinement: the problem, the best plan, the bound."""

    graph: Graph
    options: Options
    #: Bytes for pool and workspace.
    room_bytes: int
    reduced: Reduced
    started_s: float
    #: How often the solver may ask whether to go on in a round; 0: as long as time allows.
    max_checks: int = 0
    #: Share of the objective by which a round's answer may miss the program's optimum.
    gap: float = 1e-6
    #: A plan within this share of the step time of the bound needs no more programs.
    enough: float = 0.0
    best: Optional[Candidate] = None
    smallest: Optional[Candidate] = None
    bound: Bound = Bound(0.0, "none")
    interrupted: bool = False
    rounds: int = 0
    #: No op is left that is worth measuring: the next program would be the last one again.
    settled: bool = False
    #: Cost and decisions of the cheapest plan that hardly missed the budget.
    promising: Optional[Tuple[float, Any]] = None
    #: How often the native search ran; each run draws other random numbers.
    searches: int = 0
    #: How often it started from nothing.
    starts: int = 0
    #: Decisions of the search behind ``best``, when it comes from there.
    best_decisions: Any = None
    measured: List[int] = field(default_factory=list)

    @classmethod
    def start(cls, graph: Graph, budget_bytes: int, options: Options) -> "Refinement":
        reduced = reduce_graph(graph, options.variants, options.keep,
                               arena=options.storage == "arena")
        room = budget_bytes + max([op.workspace_bytes for op in graph.ops] or [0])
        return cls(graph, options, room, reduced, time.perf_counter())

    # ------------------------------------------------------------------ facts
    @property
    def layers(self) -> int:
        return 0 if self.options.storage in ("arena", "live") else LAYERS

    @property
    def live_budget_bytes(self) -> int:
        """What the pool may take at most, whatever variants are chosen."""
        return pool_room(self.graph, self.room_bytes, self.options.variants)

    @property
    def left_s(self) -> float:
        return self.options.time_limit_s - (time.perf_counter() - self.started_s)

    @property
    def proven(self) -> bool:
        """True when the best plan costs no more than the bound."""
        if self.best is None:
            return self.bound.extra_s == float("inf")
        return self.best.extra_s <= self.bound.extra_s + 2e-6 * max(self.graph.time_s, 1e-300)

    def within(self, share: float) -> bool:
        """True when the best plan costs no more than the bound and this share of the step."""
        return self.proven or (
            self.best is not None
            and self.best.extra_s - self.bound.extra_s <= share * self.graph.time_s)

    # ------------------------------------------------------------------ work
    def weigh(self, schedule: Schedule) -> Candidate:
        """Weigh a schedule exactly, and keep it if it is the best so far."""
        pool = plan_storage(self.graph, schedule, self.options.storage).pool_bytes
        space = max([op.workspace_bytes for op in effective_ops(self.graph, schedule.variants)]
                    or [0])
        found = Candidate(schedule, schedule.time_s(self.graph) - self.graph.time_s, pool + space)
        if self.smallest is None or found.bytes < self.smallest.bytes:
            self.smallest = found
        if found.bytes <= self.room_bytes and (
                self.best is None
                or (found.extra_s, found.bytes) < (self.best.extra_s, self.best.bytes)):
            self.best, self.best_decisions = found, None
            self.report()
        return found

    @cached_property
    def reduced_whole(self) -> Reduced:
        """For whole buffers, which may need less than an arena with what lies beside it."""
        if not self.reduced.apart_bytes:
            return self.reduced
        return reduce_graph(self.graph, self.options.variants, self.options.keep)

    @cached_property
    def smallest_peak_bytes(self) -> int:
        """No plan's pool is smaller than this."""
        return minimum_peak_bound(self.graph, reduced=self.reduced_whole, layers=self.layers).bytes

    @cached_property
    def most_bound_s(self) -> float:
        """No bound is above this: what a plan costs at least that takes whole buffers instead.

        No limit where nothing lies beside the arena: then a bound counts live bytes only.
        """
        if not self.reduced.apart_bytes:
            return float("inf")
        return whole_buffers_bound(self.reduced_whole, self.live_budget_bytes,
                                   max(0.5, self.left_s / 3), _WHOLE_CHECKS)

    def valid(self, found: Bound) -> Bound:
        """A bound of the reduced graph as one for every plan, also those in whole buffers."""
        return found._replace(extra_s=min(found.extra_s, self.most_bound_s))

    def raise_bound(self, extra_s: float, how: str, measured: Sequence[int]) -> None:
        if extra_s > self.bound.extra_s:
            found = self.valid(Bound(extra_s, how, tuple(measured)))
            self.bound = max(self.bound, found, key=lambda bound: bound.extra_s)

    def report(self) -> None:
        """Tell ``options.progress`` where the search stands."""
        if self.options.progress is None:
            return
        scale = self.graph.time_s or 1.0
        self.options.progress(Progress(
            "exact", time.perf_counter() - self.started_s,
            self.best.bytes if self.best else None,
            self.best.extra_s / scale if self.best else None,
            self.bound.extra_s / scale if self.bound.extra_s < float("inf") else None))

    def first_bound(self, time_limit_s: float, rounds: int = 8,
                    layers: Optional[int] = None) -> None:
        self.bound = self.valid(overhead_bound(
            self.graph, self.live_budget_bytes, reduced=self.reduced, time_limit_s=time_limit_s,
            rounds=rounds, integer=False, layers=self.layers if layers is None else layers))
        if self.smallest_peak_bytes > self.live_budget_bytes:
            self.bound = Bound(float("inf"), "smallest peak")
        self.measured = list(self.bound.measured)

    def local_search(self, work: int, decisions: Any = None, breed: bool = False) -> None:
        """Let the native search improve on decisions; nothing where there is no library."""
        if not self.core or self.left_s <= 0:
            return
        core = self._chosen(self.core, decisions)
        self._take(core.search(*self._request(work), decisions, breed=breed), core)

    @contextmanager
    def searching(self, work: int, decisions: Any = None, breed: bool = False) -> Iterator[None]:
        """The same beside what the block does, on another core.

        What it finds is forgotten where the block's own plan is near enough to the bound.
        """
        if not self.cores.beside or self.left_s <= 0:
            yield
            return
        core = self._chosen(self.cores.beside, decisions)
        beside = SearchBeside(core, self._request(work), decisions, breed)
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True
        except BaseException:
            beside.stop()
            raise
        if self.interrupted:
            self._take(beside.stop(), core)
        elif self.within(self.enough):
            beside.stop()
        else:
            self._take(beside.result(), core)

    @cached_property
    def cores(self) -> Cores:
        """The native searches."""
        return Cores(self.graph, self.options)

    @property
    def core(self) -> Optional[Core]:
        """The native search; None where there is no library."""
        return self.cores.main

    def _chosen(self, core: Core, decisions: Any) -> Core:
        """The search for these decisions; two in three from nothing are narrower ones."""
        if decisions is not None:
            return core
        self.starts += 1
        return self.cores.exact(core) if self.starts % 3 else core

    def _request(self, work: int) -> Tuple[int, int, float, int]:
        """Budget, work, time and seed of the next native search."""
        self.searches += 1
        return (self.room_bytes, work, max(self.left_s, 0.01),
                self.options.seed + self.searches - 1)

    def _take(self, found: Found, core: Core) -> None:
        self.interrupted |= found.stop == INTERRUPTED
        if self.weigh(found.schedule) is self.best and self.cores.same_decisions(core):
            self.best_decisions = found.decisions

    def smallest_plan(self) -> None:
        """Where nothing fits: the plan with the least memory, for the error to name."""
        from .local import solve as local_solve
        try:
            plan = local_solve(self.graph, None, replace(
                self.options, objective="memory", max_overhead=None, bound=False,
                time_limit_s=max(0.1, min(self.left_s / 2, 5.0))))
        except (PluginMissing, OSError):
            return
        self.weigh(plan.schedule)

    def warm(self) -> Any:
        """Decisions of the search close to the best plan; None without one."""
        if self.best is None or not self.core:
            return None
        if self.best_decisions is not None:
            return self.best_decisions
        return self.core.decisions_of(self.best.schedule)

    def refine(self, rounds: int, share: float = 0.4, mend_work: int = 0,
               target: float = 1.0) -> None:
        """Solve, decode, weigh, measure one op more; until proven or out of time.

        ``target`` below 1 plans for that share of the budget: what a decoded schedule needs
        between measured ops may then fit, but nothing is proven.
        """
        allowed = int(self.live_budget_bytes * target)
        for _ in range(rounds):
            if self.within(self.enough) or self.interrupted or self.left_s <= 0.05 \
                    or not self.measured or self.settled:
                return
            self.rounds += 1
            program, values, schedule = self._ask(allowed, share, proof=target == 1.0)
            if schedule is None:
                return
            found = self.weigh(schedule)
            if found.bytes > self.room_bytes:
                self._bring_within(found, allowed, share, mend_work)
            worst = worst_op(program, self.reduced, schedule, values, allowed)
            if worst < 0 or worst in self.measured:
                self.settled = True
                return
            self.measured = sorted(set(self.measured) | {worst})

    def _ask(self, allowed_bytes: int, share: float, proof: bool
             ) -> Tuple[Program, Any, Optional[Schedule]]:
        """Solve one 0/1 program over the measured ops and decode it; None without an answer."""
        program = build(self.reduced, self.measured, allowed_bytes,
                        self.options.max_clones, self.options.recompute, self.layers)
        solution = highs.solve_integer(
            program, integer_columns(program), max(0.5, share * self.left_s),
            self._start_point(program) if proof else None, self.gap, max_checks=self.max_checks)
        if proof and not self.options.recompute:
            self.raise_bound(solution.bound - 1e-6 * abs(solution.bound), "integer, %d measured"
                             % len(program.measured), self.measured)
        self.interrupted |= solution.status == "interrupted"
        self.report()
        return program, solution.values, None if solution.values is None else \
            schedule_of_point(program, self.reduced, solution.values)

    def _bring_within(self, found: Candidate, allowed_bytes: int, share: float,
                      mend_work: int) -> None:
        """A decoded plan takes too much: plan for a little less, and mend what hardly misses."""
        near = found.bytes <= _NEAR_MISS * self.room_bytes
        if near and not self.within(_FAR) and self.left_s > 0.05:
            less = int(0.999 * allowed_bytes * self.room_bytes / found.bytes)
            schedule = self._ask(less, share, proof=False)[2]
            if schedule is not None:
                other = self.weigh(schedule)
                if other is self.best:
                    return
                # One that fits, but costs more than the best, is not what to go on from.
                found = min((one for one in (found, other) if one.bytes > self.room_bytes),
                            key=lambda one: one.bytes)
        if not mend_work or not self.core:
            return
        decisions = self.core.decisions_of(found.schedule)
        if near and (self.promising is None or found.extra_s < self.promising[0]):
            self.promising = found.extra_s, decisions
        self.local_search(mend_work * (_MEND_NEAR if near else 1), decisions)

    def squeeze(self, rounds: int) -> None:
        """Where no plan fits yet: plan for less and less memory until one does."""
        first = list(self.bound.measured)
        for target in (0.97, 0.93, 0.88, 0.8, 0.7):
            if self.best is not None or self.interrupted or self.left_s <= 0.05:
                return
            self.measured, self.settled = first, False
            self.refine(rounds, share=0.2, target=target)

    def _start_point(self, program: Program) -> Optional[np.ndarray]:
        return None if self.best is None else point_of(program, self.reduced, self.best.schedule)

    # ------------------------------------------------------------------ result
    def plan(self, method: str, budget_bytes: int) -> Plan:
        """The best plan, else the smallest, with its bound and status."""
        from .build import build_plan
        chosen = self.best or self.smallest or self.weigh(expand(self.graph, {}))
        status = Status.OPTIMAL if self.best is not None and self.proven else \
            Status.INTERRUPTED if self.interrupted else \
            Status.TIME_LIMIT if self.left_s <= 0.05 else Status.FEASIBLE
        plan = build_plan(self.graph, chosen.schedule, method, self.options, budget_bytes, status)
        share = self.bound.extra_s / (self.graph.time_s or float("inf"))
        smallest = self.smallest_peak_bytes + sum(plan.fixed_bytes.values())
        return replace(plan, bound=min(share, plan.overhead) if np.isfinite(share) else 0.0,
                       minimum_total_bytes=min(smallest, plan.total_bytes),
                       notes=plan.notes + ("bound: " + self.bound.how,))


def solve(graph: Graph, budget_bytes: Optional[int], options: Options) -> Plan:
    """Method "milp"; the signature of all solvers.

    Raises
    ------
    SolverUnavailable
        If highspy is missing.
    """
    highs.require()
    if budget_bytes is None or options.objective == "memory":
        from .frontier import least_memory
        return least_memory(graph, budget_bytes, options, solve, "milp")
    search = Refinement.start(graph, budget_bytes, options)
    work = 20000 * max(len(graph.ops), 100)
    try:
        search.weigh(expand(graph, {}))
        search.first_bound(min(2.0, options.time_limit_s / 4))
        if search.bound.extra_s == float("inf"):
            search.smallest_plan()
        search.local_search(work // 2)
        search.refine(12, share=0.2, mend_work=work // 8)
        if search.best is None and search.bound.extra_s < float("inf"):
            search.squeeze(12)
            search.measured, search.settled = list(search.bound.measured), False
        search.refine(10 ** 6)
    except KeyboardInterrupt:
        search.interrupted = True
    return search.plan("milp", budget_bytes)
