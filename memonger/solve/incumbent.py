"""What every search knows: the problem, the best plan so far, the bound, and the native searches.

:class:`memonger.solve.refinement.Refinement` adds 0/1 programs to it.
"""
from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Iterator, Optional, Sequence, Tuple, Type, TypeVar

import numpy as np

from ..graph.schedule import Schedule
from ..graph.types import Graph
from ..memory.storage import plan_storage
from ..memory.workspace import outside_pool_bytes
from ..plan.plan import Plan, Progress, Status
from ..util.errors import PluginMissing
from .chain.plans import ChainPlans, boundaries_of
from .effort import Effort
from .mip.bounds import (
    Bound,
    least_outside_pool_bytes,
    minimum_peak_bound,
    pool_limit_bytes,
    whole_buffers_bound,
)
from .mip.problem import Reduced, reduce_graph
from .options import Options
from .result import build_plan, total_bytes, unplanned
from .search import local
from .search.background import BackgroundSearch
from .search.instances import NativeSearches
from .search.native import INTERRUPTED, Found, NativeSearch
from .search.starts import baseline_schedules
from .strategy import STRATEGY

logger = logging.getLogger("memonger")

_Search = TypeVar("_Search", bound="Incumbent")


@dataclass(frozen=True)
class Candidate:
    """A schedule with what it takes: time beyond the unplanned step, pool, workspace, objects."""

    schedule: Schedule
    extra_s: float
    bytes: int


@dataclass
class Incumbent:
    """One search: the problem, the best plan, the bound."""

    graph: Graph
    options: Options
    #: Most bytes of pool, workspace and objects.
    limit_bytes: int
    reduced: Reduced
    started_s: float
    effort: Effort
    #: A plan within this share of the step time of the bound needs no more work.
    target_gap: float = 0.0
    best: Optional[Candidate] = None
    smallest: Optional[Candidate] = None
    bound: Bound = Bound(0.0, "none")
    interrupted: bool = False
    #: How often the native search ran; each run draws other random numbers.
    searches: int = 0
    #: How often it started from nothing.
    starts: int = 0
    #: Decisions of the search behind ``best``, when it comes from there.
    best_decisions: Any = None
    #: A chain's plan came near the budget.
    chained: bool = False
    #: The smallest plan that does not depend on the budget; see :meth:`smallest_plan`.
    least: Optional[Candidate] = None

    @classmethod
    def start(cls: Type[_Search], graph: Graph, budget_bytes: int,
              options: Options) -> _Search:
        reduced = reduce_graph(graph, options.variants, options.keep,
                               arena=options.storage == "arena")
        return cls(graph, options, budget_bytes + outside_pool_bytes(graph), reduced,
                   time.perf_counter(), Effort(options.time_limit_s))

    # ------------------------------------------------------------------ facts
    @property
    def layers(self) -> int:
        return 0 if self.options.storage in ("arena", "live") else STRATEGY.layers

    @property
    def live_budget_bytes(self) -> int:
        """What the pool may take at most, whatever variants are chosen."""
        return pool_limit_bytes(self.graph, self.limit_bytes, self.options.variants)

    @property
    def left_s(self) -> float:
        """Counted seconds of work left."""
        return self.effort.left_s

    @property
    def over(self) -> bool:
        """True when the work is spent, or the user has had enough."""
        return self.interrupted or self.left_s <= 0

    @property
    def possible(self) -> bool:
        """False when it is proven that no plan fits."""
        return self.bound.extra_s < float("inf")

    @property
    def proven(self) -> bool:
        """True when the best plan costs no more than the bound."""
        if self.best is None:
            return not self.possible
        return self.best.extra_s <= self.bound.extra_s + 2e-6 * max(self.graph.time_s, 1e-300)

    def within(self, share: float) -> bool:
        """True when the best plan costs no more than the bound and this share of the step."""
        return self.proven or (
            self.best is not None
            and self.best.extra_s - self.bound.extra_s <= share * self.graph.time_s)

    # ------------------------------------------------------------------ plans
    def evaluate(self, schedule: Schedule) -> Candidate:
        """Count a schedule's bytes and time exactly, and keep it if it is the best so far."""
        schedule = self._as_asked(schedule)
        pool = plan_storage(self.graph, schedule, self.options.storage).pool_bytes
        found = Candidate(schedule, schedule.time_s(self.graph) - self.graph.time_s,
                          pool + outside_pool_bytes(self.graph, schedule))
        if self.smallest is None or found.bytes < self.smallest.bytes:
            self.smallest = found
        if found.bytes <= self.limit_bytes and (
                self.best is None
                or (found.extra_s, found.bytes) < (self.best.extra_s, self.best.bytes)):
            self.best, self.best_decisions = found, None
            self.report()
        return found

    def _as_asked(self, schedule: Schedule) -> Schedule:
        """The schedule, with the values of ``options.recompute`` dropped before backward.

        Programs demand that at constrained ops only, other methods not at all.
        """
        asked = set(self.options.recompute)
        if not asked or not self.native:
            return schedule
        first = self.reduced.first_backward
        decisions = self.native.decisions_of(schedule)
        choices = tuple(
            1 if op in asked and choice == 0 and begin < first <= end and not trailing else choice
            for (op, _, begin, end, trailing), choice in zip(self.native.gaps(), decisions.choices))
        if choices == decisions.choices:
            return schedule
        found = self.native.evaluate(replace(decisions, choices=choices))
        return schedule if found is None else found.schedule

    def report(self) -> None:
        """Tell ``options.progress`` where the search stands."""
        if self.options.progress is None:
            return
        scale = self.graph.time_s or 1.0
        self.options.progress(Progress(
            "searching", time.perf_counter() - self.started_s,
            total_bytes(self.options, self.best.bytes) if self.best else None,
            self.best.extra_s / scale if self.best else None,
            self.bound.extra_s / scale if self.bound.extra_s < float("inf") else None))

    # ------------------------------------------------------------------ bounds
    @cached_property
    def reduced_whole(self) -> Reduced:
        """For whole buffers, which may need less than an arena with what lies beside it."""
        if not self.reduced.own_buffer_bytes:
            return self.reduced
        return reduce_graph(self.graph, self.options.variants, self.options.keep)

    @cached_property
    def smallest_peak_bytes(self) -> int:
        """No plan's pool is smaller than this."""
        return minimum_peak_bound(self.reduced_whole, self.layers).bytes

    @cached_property
    def most_bound_s(self) -> float:
        """The least extra time of plans in whole buffers, which no bound may exceed.

        Infinite where nothing lies beside the arena: then a bound counts live bytes only.
        """
        if not self.reduced.own_buffer_bytes:
            return float("inf")
        return whole_buffers_bound(self.reduced_whole, self.live_budget_bytes,
                                   self.effort.part(1 / 3))

    def valid(self, found: Bound) -> Bound:
        """A bound of the reduced graph as one for every plan, also those in whole buffers."""
        return found._replace(extra_s=min(found.extra_s, self.most_bound_s))

    def raise_bound(self, extra_s: float, how: str, constrained: Sequence[int]) -> None:
        if extra_s > self.bound.extra_s:
            found = self.valid(Bound(extra_s, how, tuple(constrained)))
            self.bound = max(self.bound, found, key=lambda bound: bound.extra_s)
            logger.debug("bound: at least %.3g more time (%s)", extra_s, how)

    # ------------------------------------------------------------------ native searches
    def local_search(self, work: int, decisions: Any = None, crossover: bool = False,
                     heat: float = 0.0) -> None:
        """Let the native search improve on decisions; nothing where there is no library."""
        if not self.native or self.over:
            return
        native = self._chosen(self.native, decisions)
        request = self._request(work)
        self.effort.spend(request[1] / STRATEGY.steps_per_s)
        self._take(native.search(*request, decisions, crossover=crossover, heat=heat), native)

    @contextmanager
    def searching(self, work: int, decisions: Any = None,
                  crossover: bool = False) -> Iterator[None]:
        """The same while the block runs, on another core; nothing without work.

        What it finds is forgotten where the block's own plan is near enough to the bound.
        """
        if not work or not self.native_searches.background or self.over:
            yield
            return
        native = self._chosen(self.native_searches.background, decisions)
        request, spent_s = self._request(work), self.effort.spent_s
        background = BackgroundSearch(native, request, decisions, crossover)
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True
        except BaseException:
            background.stop()
            raise
        if self.interrupted:
            self._take(background.stop(), native)
        elif self.within(self.target_gap):
            background.stop()
        else:
            self._take(background.result(), native)
            done_s = self.effort.spent_s - spent_s
            self.effort.spend(max(0.0, request[1] / STRATEGY.steps_per_s - done_s))

    @cached_property
    def native_searches(self) -> NativeSearches:
        """The native searches."""
        return NativeSearches(self.graph, self.options)

    @property
    def native(self) -> Optional[NativeSearch]:
        """The native search; None where there is no library."""
        return self.native_searches.main

    def _chosen(self, native: NativeSearch, decisions: Any) -> NativeSearch:
        """The search for these decisions; two of three that start from nothing use exact variants.
        """
        if decisions is not None:
            return native
        self.starts += 1
        return self.native_searches.exact(native) if self.starts % 3 else native

    def _request(self, work: int) -> Tuple[int, int, float, int]:
        """Budget, work, time and seed of the next native search."""
        self.searches += 1
        return (self.limit_bytes, min(work, self.effort.steps), self.effort.clock_s,
                self.options.seed + self.searches - 1)

    def _take(self, found: Found, native: NativeSearch) -> None:
        self.interrupted |= found.stop == INTERRUPTED
        if self.best is not None and found.cost_s - self.graph.time_s > self.best.extra_s:
            return  # a storage assignment would take half a second
        if self.evaluate(found.schedule) is self.best and self.native:
            self.best_decisions = found.decisions if self.native_searches.same_decisions(native) \
                else self.native.adopt(native, found.decisions)

    def smallest_plan(self) -> None:
        """Evaluate the plan with the least memory and those of simpler methods. Once.

        None of them depends on the budget. So a budget is refused only where they do not fit, and
        what the error then calls possible is.
        """
        if self.least is not None:
            return
        options = replace(self.options, objective="memory", max_overhead=None, bound=False,
                          time_limit_s=STRATEGY.least_s)
        found = [self.evaluate(unplanned(self.graph))]
        try:
            found.append(self._evaluate_least(local.solve(self.graph, None, options)))
        except (PluginMissing, OSError):
            pass
        sets = sorted({(), found[-1].schedule.variants})
        if not self.interrupted:
            found += [self.evaluate(schedule)
                      for schedule in baseline_schedules(self.graph, options, sets)]
        smallest = self.chain.smallest() if self.chain and not self.interrupted else None
        if smallest is not None:
            found.append(self.evaluate(smallest.schedule))
        self.least = min(found, key=lambda one: one.bytes)

    def offer_least(self, plan: Plan) -> None:
        """Another plan that does not depend on the budget."""
        found = self._evaluate_least(plan)
        if self.least is None or found.bytes < self.least.bytes:
            self.least = found

    def _evaluate_least(self, plan: Plan) -> Candidate:
        self.interrupted |= plan.status is Status.INTERRUPTED
        return self.evaluate(plan.schedule)

    def warm(self) -> Any:
        """Decisions of the search close to the best plan; None without one."""
        if self.best is None or not self.native:
            return None
        if self.best_decisions is not None:
            return self.best_decisions
        return self.native.decisions_of(self.best.schedule)

    # ------------------------------------------------------------------ chains
    @cached_property
    def is_chain(self) -> bool:
        """Whether the graph can be cut into segments."""
        return bool(boundaries_of(self.graph, self.options))

    @cached_property
    def chain(self) -> Optional[ChainPlans]:
        """The graph's chain, which takes work the first time; None where it is none."""
        if not self.native:
            return None
        return ChainPlans.of(self.graph, self.options, self.native, self.effort)

    def follow_chain(self, work: int) -> None:
        """Evaluate the chain's plans for the budget, and search on from the cheapest."""
        chain = self.chain
        if chain is None:
            return
        cheapest: Optional[Found] = None
        outside_bytes = outside_pool_bytes(self.graph)
        for found in chain.plans(self.limit_bytes - outside_bytes):
            candidate = self.evaluate(found.schedule)
            if candidate is self.best:
                self.best_decisions = found.decisions
            if candidate.bytes <= self.limit_bytes * STRATEGY.near_miss and (
                    cheapest is None or found.cost_s < cheapest.cost_s):
                cheapest = found
        if cheapest is not None:
            self.chained = True
            self.local_search(work, cheapest.decisions, heat=STRATEGY.chain_heat)

    # ------------------------------------------------------------------ result
    def plan(self, method: str, budget_bytes: int) -> Plan:
        """The best plan, else the smallest, with its bound and status."""
        chosen = self.best or self.least or self.smallest or self.evaluate(unplanned(self.graph))
        status = Status.OPTIMAL if self.best is not None and self.proven else \
            Status.INTERRUPTED if self.interrupted else \
            Status.TIME_LIMIT if self.left_s <= 0 else Status.FEASIBLE
        plan = build_plan(self.graph, chosen.schedule, method, self.options, budget_bytes, status)
        share = self.bound.extra_s / (self.graph.time_s or float("inf"))
        smallest = total_bytes(self.options, self.smallest_peak_bytes + least_outside_pool_bytes(
            self.graph, self.options.variants))
        return replace(plan, bound=min(share, plan.overhead) if np.isfinite(share) else 0.0,
                       minimum_total_bytes=min(smallest, plan.total_bytes),
                       bounded=True)
