"""Native searches of one board: each goes on from decisions or starts from nothing.

One runs in the caller's thread, one beside it on another core. Variants that are not exact seldom
save much time. A search from nothing finds worse plans with them for the same work, but they
improve on the best plan that was found without them. So searches that go on from the best plan
have all variants, and adopt it unchanged
(:meth:`memonger.solve.search.native.NativeSearch.adopt`). Of those that start from nothing two in
three leave inexact variants out, and one has them: in some networks they matter.
"""
from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, Dict, Iterator, Optional, Tuple

from ...graph.schedule import Schedule
from ...graph.types import Graph
from ...util.errors import PluginMissing
from ..candidate import Candidate, Collector
from ..options import Options
from .background import BackgroundSearch
from .decisions import INTERRUPTED, Decisions, SearchResult
from .native import NativeSearch


class Walks:
    """The native searches of a graph, made when first asked for; without the library none."""

    def __init__(self, graph: Graph, options: Options):
        self.graph = graph
        self.options = options
        self._exact: Dict[NativeSearch, NativeSearch] = {}
        #: How many ran, which gives each its seed, and how many of these started from nothing.
        self._runs = self._starts = 0
        #: The plan behind which these decisions are.
        self._decided: Optional[Tuple[Candidate, Decisions]] = None

    @cached_property
    def main(self) -> Optional[NativeSearch]:
        """The search of the caller's thread; None where there is no library."""
        try:
            return NativeSearch(self.graph, self.options)
        except (PluginMissing, OSError):
            return None

    @cached_property
    def _background(self) -> Optional[NativeSearch]:
        return self.main and NativeSearch(self.graph, self.options)

    # ------------------------------------------------------------------ searching
    def improve(self, board: Collector, work: int, decisions: Optional[Decisions] = None,
                crossover: bool = False, heat: float = 0.0) -> None:
        """Search for so many steps, from decisions or from nothing, and evaluate what comes out."""
        if not self.main or board.over:
            return
        native = self._for(self.main, decisions)
        request, poll = self._request(board, work), board.poll()
        board.effort.spend(board.effort.seconds(request[1]))
        self._take(board, native, native.search(*request, decisions, poll,
                                                crossover=crossover, heat=heat))

    @contextmanager
    def beside(self, board: Collector, work: int, decisions: Optional[Decisions] = None,
               crossover: bool = False, near: float = 0.0) -> Iterator[None]:
        """The same while the block runs, on another core; nothing without work.

        What it finds is forgotten where the block's own plan is within ``near`` of the bound.
        """
        if not work or not self._background or board.over:
            yield
            return
        native = self._for(self._background, decisions)
        request, spent_s = self._request(board, work), board.effort.spent_s
        background = BackgroundSearch(native, request, decisions, crossover)
        try:
            yield
        except KeyboardInterrupt:
            board.interrupted = True
        except BaseException:
            background.stop()
            raise
        if board.interrupted:
            self._take(board, native, background.stop())
        elif board.within(near):
            background.stop()
        else:
            self._take(board, native, background.result())
            done_s = board.effort.spent_s - spent_s
            board.effort.spend(max(0.0, board.effort.seconds(request[1]) - done_s))

    def warm(self, board: Collector) -> Optional[Decisions]:
        """Decisions of the search close to the best plan; None without one."""
        if board.best is None or not self.main:
            return None
        if self._decided is not None and self._decided[0] is board.best:
            return self._decided[1]
        return self.main.decisions_of(board.best.schedule)

    def remember(self, candidate: Candidate, decisions: Decisions) -> None:
        """The decisions that gave a plan, for :meth:`warm`."""
        self._decided = candidate, decisions

    def as_asked(self, schedule: Schedule) -> Schedule:
        """The schedule, with the values of ``options.recompute`` dropped before backward.

        Programs demand that at constrained ops only, other methods not at all.
        """
        asked, ops = set(self.options.recompute), self.graph.ops
        if not asked or not self.main:
            return schedule
        decisions = self.main.decisions_of(schedule)
        choices = tuple(
            1 if op in asked and choice == 0 and not trailing
            and not ops[begin].is_backward and ops[end].is_backward else choice
            for (op, _, begin, end, trailing), choice in zip(self.main.gaps(), decisions.choices))
        if choices == decisions.choices:
            return schedule
        dropped = self.main.evaluate(replace(decisions, choices=choices))
        return schedule if dropped is None else dropped.schedule

    # ------------------------------------------------------------------ within
    def _for(self, native: NativeSearch, decisions: Any) -> NativeSearch:
        """The search for these decisions; two of three that start from nothing are exact."""
        if decisions is not None:
            return native
        self._starts += 1
        return self._exact_one(native) if self._starts % 3 else native

    def _exact_one(self, native: NativeSearch) -> NativeSearch:
        """The same search without variants that are not exact; itself where there are none."""
        if self.options.variants != "all" or all(v.exact for v in self.graph.variants):
            return native
        if native not in self._exact:
            self._exact[native] = NativeSearch(self.graph, replace(self.options, variants="exact"))
        return self._exact[native]

    def _request(self, board: Collector, work: int) -> Tuple[int, int, float, int]:
        """Budget, work, time and seed of the next search."""
        self._runs += 1
        return (board.limit_bytes, min(work, board.effort.steps), board.effort.clock_s,
                self.options.seed + self._runs - 1)

    def _take(self, board: Collector, native: NativeSearch, result: SearchResult) -> None:
        board.interrupted |= result.stop == INTERRUPTED
        if board.best is not None and result.cost_s - self.graph.time_s > board.best.extra_s:
            return  # a storage assignment would take half a second
        candidate = board.evaluate(result.schedule)
        if candidate is board.best and self.main:
            own = native not in self._exact.values()
            self.remember(candidate, result.decisions if own
                          else self.main.adopt(native, result.decisions))
