"""The exact method: 0/1 programs over few constrained ops, refined until their plans fit.

Each round solves the program of :mod:`memonger.solve.mip.formulation` over the constrained ops
(lives, reruns and variants 0 or 1, buffers whole), decodes the answer into a schedule and counts
its bytes in exact integers. The program's bound holds for every plan. A schedule that fits and
costs no more than the bound is optimal; where it does not fit, the op at which it exceeds the
budget most is constrained as well. With all ops constrained the program is MONeT's and Checkmate's,
but a handful of them proves most optima.

The local search, where the native library is there, gives the first plan and mends decoded
schedules that do not fit. Cost: the worst case is exponential; ``time_limit_s`` ends it.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, List, Optional, Tuple

import numpy as np

from ..graph.schedule import Schedule
from ..graph.types import Graph
from ..plan.plan import Plan
from .effort import Effort
from .incumbent import Candidate, Incumbent
from .mip import highs
from .mip.bounds import (
    Bound,
    constrained_in_pieces,
    integer_columns,
    overhead_bound,
    span_bound,
    spans_of,
)
from .mip.formulation import build
from .mip.program import Program
from .mip.rounding import schedule_of_point
from .mip.windows import peak_ops, point_of, worst_op
from .options import Options
from .result import as_asked
from .strategy import STRATEGY


@dataclass
class Refinement(Incumbent):
    """A search by refinement: programs over more and more constrained ops."""

    #: How often the solver may ask whether to go on in a round; 0: as long as time allows.
    max_checks: int = 0
    #: Share of the objective by which a round's answer may miss the program's optimum.
    gap: float = 1e-6
    #: The same as a share of the step time; the larger of both counts.
    step_gap: float = 0.0
    #: Most programs; how many in a row have been in vain, and how many may be.
    programs: int = 0
    in_vain: int = 0
    patience: int = 1
    rounds: int = 0
    #: No further op needs a constraint, or a program has no answer: the next would be the same.
    exhausted: bool = False
    #: A decoded plan took so much memory that programs are no guide to plans that fit.
    missed_far: bool = False
    #: Cost and decisions of the cheapest plan that almost met the budget.
    near_miss: Optional[Tuple[float, Any]] = None
    constrained: List[int] = field(default_factory=list)
    #: Programs have rows over spans of windows (:mod:`memonger.solve.mip.spans`).
    spans: bool = False

    @property
    def wants_program(self) -> bool:
        """Whether another 0/1 program may be worth its work."""
        far = self.missed_far and len(self.graph.ops) > STRATEGY.small_ops
        return self.rounds < self.programs and self.in_vain < self.patience and not self.exhausted \
            and not self.over and not (far and self.rounds)

    def first_bound(self, rounds: int = 8, layers: Optional[int] = None) -> None:
        self.bound = self.valid(overhead_bound(
            self.graph, self.live_budget_bytes, reduced=self.reduced,
            effort=self.effort.part(1 / 3), rounds=rounds,
            layers=self.layers if layers is None else layers))
        if self.smallest_peak_bytes > self.live_budget_bytes:
            self.bound = Bound(float("inf"), "smallest peak")
        self.constrained = list(self.bound.constrained)

    def span_bound(self) -> None:
        """Raise the bound by a program with spans."""
        if self.options.recompute or self.over:
            return
        found = span_bound(self.reduced, self.live_budget_bytes, self.effort)
        self.raise_bound(found.extra_s, found.how, found.constrained)

    def _program(self, allowed_bytes: int) -> Program:
        spans = spans_of(self.reduced, self.constrained) if self.spans else ()
        return build(self.reduced, self.constrained, allowed_bytes, self.options.max_clones,
                     self.options.recompute, self.layers, spans)

    def constrain_pieces(self, pieces: int) -> None:
        """Constrain an op in each of so many pieces of backward, with rows over spans of windows.

        A stronger program than that of the ops which gave the linear bound, and a larger one.
        """
        self.constrained, self.spans = constrained_in_pieces(self.reduced, pieces), True

    def refine(self, rounds: int, share: float = 0.4, mend_work: int = 0,
               target: float = 1.0) -> None:
        """Solve, decode, evaluate, constrain one op more; until proven or out of time.

        ``target`` below 1 plans for that share of the budget: what a decoded schedule needs
        between constrained ops may then fit, but nothing is proven.
        """
        allowed = int(self.live_budget_bytes * target)
        for _ in range(rounds):
            if self.within(self.target_gap) or self.interrupted or self.left_s <= 0 \
                    or not self.constrained or self.exhausted:
                return
            self.rounds += 1
            program, values, schedule = self._ask(allowed, self.effort.part(share),
                                                  proof=target == 1.0)
            if schedule is None:  # the same program would have no other answer
                self.exhausted = True
                return
            found = self.evaluate(schedule)
            if found.bytes > self.limit_bytes:
                self._bring_within(found, allowed, share, mend_work)
            worst = worst_op(program, self.reduced, schedule, values, allowed)
            if worst < 0 or worst in self.constrained:
                self.exhausted = True
                return
            self.constrained = sorted(set(self.constrained) | {worst})

    def _ask(self, allowed_bytes: int, effort: Effort, proof: bool
             ) -> Tuple[Program, Any, Optional[Schedule]]:
        """Solve one 0/1 program over the constrained ops and decode it; None without an answer."""
        program = self._program(allowed_bytes)
        solution = highs.solve_integer(
            program, integer_columns(program), effort,
            self._start_point(program) if proof else None, self.gap, max_checks=self.max_checks,
            absolute_gap=self.step_gap * self.graph.time_s)
        if proof and not self.options.recompute:
            self.raise_bound(solution.bound - 1e-6 * abs(solution.bound), "integer, %d constrained"
                             % len(program.constrained), self.constrained)
        self.interrupted |= solution.status == "interrupted"
        self.report()
        return program, solution.values, None if solution.values is None else \
            schedule_of_point(program, self.reduced, solution.values)

    def _bring_within(self, found: Candidate, allowed_bytes: int, share: float,
                      mend_work: int) -> None:
        """A decoded plan takes too much: mend it; what almost fits is also planned for less."""
        near = found.bytes <= STRATEGY.near_miss * self.limit_bytes
        self.missed_far |= found.bytes > STRATEGY.far_miss * self.limit_bytes
        if self.best is not None and found.extra_s >= self.best.extra_s:
            return
        self._mend(found, mend_work, near)
        if not near or self.within(STRATEGY.far) or self.left_s <= 0 or self.best is not None \
                and self.best.extra_s - found.extra_s <= self.target_gap * self.graph.time_s:
            return
        less = int(0.999 * allowed_bytes * self.limit_bytes / found.bytes)
        schedule = self._ask(less, self.effort.part(share), proof=False)[2]
        if schedule is not None:
            other = self.evaluate(schedule)
            # One that fits, but costs more than the best, is not what to go on from.
            if self.limit_bytes < other.bytes < found.bytes:
                self._mend(other, mend_work, near)

    def _mend(self, found: Candidate, mend_work: int, near: bool) -> None:
        """Let the native search go on from a plan that does not fit."""
        if not mend_work or not self.native:
            return
        decisions = self.native.decisions_of(found.schedule)
        if near and (self.near_miss is None or found.extra_s < self.near_miss[0]):
            self.near_miss = found.extra_s, decisions
        self.local_search(mend_work * (STRATEGY.mend_near if near else 1), decisions)

    def bound_at_peaks(self, count: int, seconds: float) -> None:
        """One 0/1 program over the ops where the best plan takes most, in counted seconds."""
        if self.best is None:
            return
        self.constrained = peak_ops(self.reduced, self.best.schedule, count)
        self.max_checks = 0
        schedule = self._ask(self.live_budget_bytes, Effort(seconds, self.effort), proof=True)[2]
        if schedule is not None:
            self.evaluate(schedule)

    def squeeze(self, rounds: int) -> None:
        """Where no plan fits yet: plan for less and less memory until one does."""
        first = list(self.bound.constrained)
        for target in (0.97, 0.93, 0.88, 0.8, 0.7):
            if self.best is not None or self.interrupted or self.left_s <= 0:
                return
            self.constrained, self.exhausted = first, False
            self.refine(rounds, share=0.2, target=target)

    def _start_point(self, program: Program) -> Optional[np.ndarray]:
        return None if self.best is None else point_of(program, self.reduced, self.best.schedule)


def solve(graph: Graph, budget_bytes: Optional[int], options: Options) -> Plan:
    """Method "milp"; the signature of all solvers.

    Raises
    ------
    SolverUnavailable
        If highspy is missing.
    """
    highs.require()
    if budget_bytes is None or options.objective == "memory":
        from .least_memory import least_memory
        return least_memory(graph, budget_bytes, options)
    search = Refinement.start(graph, budget_bytes, options)
    work = 20000 * max(len(graph.ops), 100)
    try:
        search.evaluate(as_asked(graph, options))
        search.first_bound()
        if search.bound.extra_s == float("inf"):
            search.smallest_plan()
        search.local_search(work // 2)
        search.refine(12, share=0.2, mend_work=work // 8)
        if search.best is None and search.bound.extra_s < float("inf"):
            search.squeeze(12)
            search.constrained, search.exhausted = list(search.bound.constrained), False
        search.refine(10 ** 6)
    except KeyboardInterrupt:
        search.interrupted = True
    return search.plan("milp", budget_bytes)
