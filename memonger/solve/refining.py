"""0/1 programs over few constrained ops, refined until their plans fit.

Each round solves the program of :mod:`memonger.solve.mip.formulation` over the constrained ops
(lives, reruns and variants 0 or 1), decodes the answer into a schedule and counts
its bytes in exact integers. The program's bound holds for every plan. A schedule that fits and
costs no more than the bound is optimal; where it does not fit, the op at which it exceeds the
budget most is constrained as well. With all ops constrained the program is MONeT's and Checkmate's,
but a handful of them proves most optima. The native search mends decoded schedules that do not fit.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, List, Optional, Tuple

import numpy as np

from ..graph.schedule import Schedule
from .board import Board
from .candidate import Candidate
from .effort import Effort
from .mip import highs
from .mip.formulation import build
from .mip.program import Program, integer_columns
from .mip.rounding import schedule_of_point
from .mip.windows import peak_ops, point_of, worst_op

#: A decoded plan above this share of the budget shows that programs are no guide.
FAR_MISS = 1.3
#: Decoded plans below this share of the budget are mended with ``MEND_NEAR`` times as much work.
NEAR_MISS = 1.06
#: How many times as much work mends a plan that misses the budget by little.
MEND_NEAR = 16
#: Where the best plan is within this share of the step's time of the bound, no program plans again
#: for less memory.
FAR = 0.005


@dataclass
class Programs:
    """The 0/1 programs of one board."""

    board: Board
    #: Ops at which live bytes are constrained.
    constrained: List[int] = field(default_factory=list)
    #: How often the solver may ask whether to go on in a round; 0: as long as time allows.
    max_checks: int = 0
    #: Share of the objective by which a round's answer may miss the program's optimum.
    gap: float = 1e-6
    #: The same as a share of the step time; the larger of both counts.
    step_gap: float = 0.0
    #: A plan within this share of the step time of the bound needs no more programs.
    target_gap: float = 0.0
    rounds: int = 0
    #: No further op needs a constraint, or a program has no answer: the next would be the same.
    exhausted: bool = False
    #: A decoded plan took so much memory that programs are no guide to plans that fit.
    missed_far: bool = False
    #: Cost and decisions of the cheapest plan that almost met the budget.
    near_miss: Optional[Tuple[float, Any]] = None

    def refine(self, rounds: int, share: float = 0.4, mend_work: int = 0,
               target: float = 1.0) -> None:
        """Solve, decode, evaluate, constrain one op more; until proven or out of time.

        ``target`` below 1 plans for that share of the budget: what a decoded schedule needs
        between constrained ops may then fit, but nothing is proven.
        """
        board = self.board
        allowed = int(board.live_budget_bytes * target)
        for _ in range(rounds):
            if board.within(self.target_gap) or board.over or not self.constrained \
                    or self.exhausted:
                return
            self.rounds += 1
            program, schedule = self._ask(allowed, board.effort.part(share),
                                          proof=target == 1.0)
            if schedule is None:  # the same program would have no other answer
                self.exhausted = True
                return
            decoded = board.evaluate(schedule)
            if decoded.bytes > board.limit_bytes:
                self._bring_within(decoded, allowed, share, mend_work)
            worst = worst_op(program, board.reduced, schedule, allowed)
            if worst < 0 or worst in self.constrained:
                self.exhausted = True
                return
            self.constrained = sorted(set(self.constrained) | {worst})

    def squeeze(self, rounds: int) -> None:
        """Where no plan fits yet: plan for less and less memory until one does."""
        first = list(self.board.bound.constrained)
        for target in (0.97, 0.93, 0.88, 0.8, 0.7):
            if self.board.best is not None or self.board.over:
                return
            self.constrained, self.exhausted = first, False
            self.refine(rounds, share=0.2, target=target)

    def bound_at_peaks(self, count: int, seconds: float) -> None:
        """One program over the ops where the best plan takes most, in counted seconds."""
        board = self.board
        if board.best is None:
            return
        self.constrained = peak_ops(board.reduced, board.best.schedule, count)
        self.max_checks = 0
        schedule = self._ask(board.live_budget_bytes, Effort(seconds, board.effort), proof=True)[1]
        if schedule is not None:
            board.evaluate(schedule)

    def _ask(self, allowed_bytes: int, effort: Effort, proof: bool
             ) -> Tuple[Program, Optional[Schedule]]:
        """Solve one program over the constrained ops and decode it; None without an answer."""
        board, options = self.board, self.board.options
        program = build(board.reduced, self.constrained, allowed_bytes, options.max_clones,
                        options.recompute)
        solution = highs.solve_integer(
            program, integer_columns(program), effort,
            self._start_point(program) if proof else None, self.gap, max_checks=self.max_checks,
            absolute_gap=self.step_gap * board.graph.time_s)
        if proof and not options.recompute:
            board.raise_bound(solution.bound - 1e-6 * abs(solution.bound),
                              "integer, %d constrained" % len(program.constrained),
                              self.constrained)
        board.interrupted |= solution.status == "interrupted"
        board.report()
        return program, None if solution.values is None else \
            schedule_of_point(program, board.reduced, solution.values)

    def _bring_within(self, decoded: Candidate, allowed_bytes: int, share: float,
                      mend_work: int) -> None:
        """A decoded plan takes too much: mend it; what almost fits is also planned for less."""
        board = self.board
        near = decoded.bytes <= NEAR_MISS * board.limit_bytes
        self.missed_far |= decoded.bytes > FAR_MISS * board.limit_bytes
        if board.best is not None and decoded.extra_s >= board.best.extra_s:
            return
        self._mend(decoded, mend_work, near)
        if not near or board.within(FAR) or board.effort.left_s <= 0 or board.best is not None \
                and board.best.extra_s - decoded.extra_s <= self.target_gap * board.graph.time_s:
            return
        less = int(0.999 * allowed_bytes * board.limit_bytes / decoded.bytes)
        schedule = self._ask(less, board.effort.part(share), proof=False)[1]
        if schedule is not None:
            smaller = board.evaluate(schedule)
            # One that fits, but costs more than the best, is not what to go on from.
            if board.limit_bytes < smaller.bytes < decoded.bytes:
                self._mend(smaller, mend_work, near)

    def _mend(self, decoded: Candidate, mend_work: int, near: bool) -> None:
        """Let the native search go on from a plan that does not fit."""
        native = self.board.walks.main
        if not mend_work or not native:
            return
        decisions = native.decisions_of(decoded.schedule)
        if near and (self.near_miss is None or decoded.extra_s < self.near_miss[0]):
            self.near_miss = decoded.extra_s, decisions
        self.board.walks.improve(self.board, mend_work * (MEND_NEAR if near else 1), decisions)

    def _start_point(self, program: Program) -> Optional[np.ndarray]:
        board = self.board
        return None if board.best is None else point_of(program, board.best.schedule)
