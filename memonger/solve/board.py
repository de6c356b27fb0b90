"""What the steps of a search share: the problem, the best plan, the smallest, the bound, the work.

A step reads the board, and leaves better plans and bounds on it. What only one part of the search
needs lies with that part: :class:`memonger.solve.search.walks.Walks` for the native search,
:class:`memonger.solve.refining.Programs` for 0/1 programs.
"""
from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Optional, Sequence

import numpy as np

from ..graph.schedule import Schedule
from ..graph.types import Graph
from ..memory.host import keeps_host
from ..memory.storage import pool_of
from ..memory.workspace import outside_pool_bytes
from ..plans.plan import Plan, Progress, Status
from .candidate import NO_BUDGET, Candidate, Poll
from .chain.plans import ChainPlans, boundaries_of
from .effort import Effort
from .mip.bounds import LowerBound, overhead_bound
from .mip.least_bytes import least_outside_pool_bytes, minimum_peak_bound, pool_limit_bytes
from .mip.problem import Reduced, reduce_graph
from .options import Options
from .result import build_plan, total_bytes, unplanned
from .search.walks import Walks

logger = logging.getLogger("memonger")


@dataclass
class Board:
    """One search."""

    graph: Graph
    options: Options
    #: Most bytes of pool, workspace and objects.
    limit_bytes: int
    reduced: Reduced
    effort: Effort
    walks: Walks
    started_s: float = field(default_factory=time.perf_counter)
    best: Optional[Candidate] = None
    smallest: Optional[Candidate] = None
    #: The smallest plan that does not depend on the budget; see :mod:`memonger.solve.fallbacks`.
    fallback: Optional[Candidate] = None
    bound: LowerBound = LowerBound(0.0, "none")
    interrupted: bool = False

    @classmethod
    def start(cls, graph: Graph, budget_bytes: int, options: Options) -> "Board":
        """An empty board for a budget of the pool, beside the unplanned workspace and objects."""
        reduced = reduce_graph(graph, options.variants, options.keep, options.host_budget_bytes)
        return cls(graph, options, budget_bytes + outside_pool_bytes(graph), reduced,
                   Effort(options.time_limit_s, options.account, len(graph.ops), options.storage),
                   Walks(graph, options))

    # ------------------------------------------------------------------ facts
    @property
    def live_budget_bytes(self) -> int:
        """What the pool may take at most, whatever variants are chosen."""
        return pool_limit_bytes(self.graph, self.limit_bytes, self.options.variants)

    @property
    def over(self) -> bool:
        """True when the work is spent, or the user has had enough."""
        return self.interrupted or self.effort.left_s <= 0

    @property
    def call_over(self) -> bool:
        """True when the work of all searches of the call is spent."""
        account = self.options.account
        return account is not None and account.left_s <= 0

    @property
    def possible(self) -> bool:
        """False when it is proven that no plan fits."""
        return self.bound.extra_s < float("inf")

    @property
    def proven(self) -> bool:
        """True when the best plan costs no more than the bound, or no plan can fit."""
        if self.best is None:
            return not self.possible
        return self.best.extra_s <= self.bound.extra_s + 2e-6 * max(self.graph.time_s, 1e-300)

    @property
    def open(self) -> bool:
        """True while a better plan may exist and be found."""
        return self.possible and not self.proven and not self.interrupted

    def within(self, share: float) -> bool:
        """True when the best plan costs no more than the bound and this share of the step."""
        return self.proven or (
            self.best is not None
            and self.best.extra_s - self.bound.extra_s <= share * self.graph.time_s)

    # ------------------------------------------------------------------ plans
    def evaluate(self, schedule: Schedule) -> Candidate:
        """Count a schedule's bytes and time exactly, and keep it if it is the best so far."""
        schedule = self.walks.as_asked(schedule)
        pool = pool_of(self.graph, schedule, self.options.storage)
        # Also where it is remembered: the work of a call must not depend on calls before.
        self.effort.spend_on_storage(len(schedule.steps), pool.placed)
        size_bytes = pool.size_bytes + outside_pool_bytes(self.graph, schedule) \
            if keeps_host(self.graph, schedule, self.options.host_budget_bytes) else NO_BUDGET
        candidate = Candidate(schedule, schedule.time_s(self.graph) - self.graph.time_s, size_bytes)
        if self.smallest is None or candidate.bytes < self.smallest.bytes:
            self.smallest = candidate
        if candidate.bytes <= self.limit_bytes and (
                self.best is None or
                (candidate.extra_s, candidate.bytes) < (self.best.extra_s, self.best.bytes)):
            self.best = candidate
            self.report()
        return candidate

    def poll(self) -> Optional[Poll]:
        """What a native search calls, so that there is news ten times a second."""
        if self.options.progress is None:
            return None
        start_s = next_s = time.perf_counter()
        spent_s = self.effort.spent_s

        def call(*_: object) -> None:
            nonlocal next_s
            now_s = time.perf_counter()
            if now_s >= next_s:
                next_s = now_s + 0.1
                # The work of the native search was counted when it began.
                self.report(min(self.effort.spent_s, spent_s + now_s - start_s))
        return call

    def report(self, done_s: Optional[float] = None) -> None:
        """Tell ``options.progress`` where the search stands.

        ``done_s``: work that is done, in counted seconds; by default what was spent.
        """
        if self.options.progress is None or self.interrupted:
            return
        scale = self.graph.time_s or 1.0
        done = (self.effort.spent_s if done_s is None else done_s) / self.options.time_limit_s
        self.options.progress(Progress(
            "searching", time.perf_counter() - self.started_s,
            total_bytes(self.options, self.best.bytes) if self.best else None,
            self.best.extra_s / scale if self.best else None,
            self.bound.extra_s / scale if self.bound.extra_s < float("inf") else None,
            min(1.0, done), own_units=self.graph.own_units))

    def plan(self, method: str, budget_bytes: int) -> Plan:
        """The best plan, else the smallest, with its bound and status."""
        chosen = self.best or self.fallback or self.smallest or self.evaluate(unplanned(self.graph))
        status = Status.OPTIMAL if self.best is not None and self.proven else \
            Status.INTERRUPTED if self.interrupted else \
            Status.TIME_LIMIT if self.effort.left_s <= 0 else Status.FEASIBLE
        plan = build_plan(self.graph, chosen.schedule, method, self.options, budget_bytes, status)
        share = self.bound.extra_s / (self.graph.time_s or float("inf"))
        plan = plan.changed(bound=min(share, plan.overhead) if np.isfinite(share) else 0.0,
                            bounded=True)
        if not self.options.bound:
            return plan
        least_bytes = total_bytes(self.options, self.smallest_peak_bytes + least_outside_pool_bytes(
            self.graph, self.options.variants))
        return plan.changed(minimum_total_bytes=min(least_bytes, plan.total_bytes))

    # ------------------------------------------------------------------ chains
    @cached_property
    def is_chain(self) -> bool:
        """Whether the graph can be cut into segments."""
        return bool(boundaries_of(self.graph, self.options))

    @cached_property
    def chain(self) -> Optional[ChainPlans]:
        """The graph's chain, which takes work the first time; None where it is none."""
        if not self.walks.main:
            return None
        return ChainPlans.of(self.graph, self.options, self.walks.main, self.effort)

    # ------------------------------------------------------------------ bounds
    @cached_property
    def smallest_peak_bytes(self) -> int:
        """No plan's pool is smaller than this."""
        return minimum_peak_bound(self.reduced, None if self.options.bound else 0,
                                  effort=self.effort.part(1 / 3)).bytes

    def first_bound(self, rounds: int = 8) -> None:
        """The bound of a few linear programs, or of the smallest peak."""
        self.bound = overhead_bound(self.graph, self.live_budget_bytes, reduced=self.reduced,
                                    effort=self.effort.part(1 / 3), rounds=rounds)
        if self.smallest_peak_bytes > self.live_budget_bytes:
            self.bound = LowerBound(float("inf"), "smallest peak")

    def raise_bound(self, extra_s: float, how: str, constrained: Sequence[int]) -> None:
        """Keep a bound of the reduced graph where it says more."""
        if extra_s > self.bound.extra_s:
            self.bound = LowerBound(extra_s, how, tuple(constrained))
            logger.debug("bound: at least %.3g more time (%s)", extra_s, how)
