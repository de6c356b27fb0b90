"""The C++ planner (``plugins/core``): its calls, in the terms of graphs and schedules.

The library simulates tens of thousands of decisions a second; :class:`NativeSearch` owns one
problem in it.
"""
from __future__ import annotations

import ctypes
from typing import Any, List, Optional

from ...graph.schedule import Schedule, Step
from ...graph.types import Graph
from ...memory.storage import STORAGES
from ...util import signals as interrupts
from ...util.errors import SolverError
from ...util.native_libraries import array, core
from ..candidate import Poll
from ..mip.implementations import allowed_variants
from ..options import Options
from .decisions import FINISHED, Decisions, Gap, SearchResult, adopted, closest
from .flat_problem import flat_problem

#: What the library calls now and then: with the best cost and size so far; not 0 ends the search.
_POLL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_double, ctypes.c_int64)
#: What the search can leave out: the bits of ``Part`` in ``plugins/core/search/options.h``.
PARTS = {"starts by thresholds": 1, "groups of like values": 2, "iterated repair": 4,
         "annealing": 8, "moves of stretches": 16, "moves of checkpoints": 32,
         "moves of like values": 64}

class NativeSearch:
    """One problem in the C++ library.

    Parameters
    ----------
    graph : Graph
    options : Options
        ``storage``, ``keep``, ``recompute``, ``variants``, ``max_clones`` and ``without`` are read.
    """

    def __init__(self, graph: Graph, options: Options):
        self.graph = graph
        self.allowed_variants = allowed_variants(graph, options.variants)
        self._library = _load()
        self._without = sum(bit for name, bit in PARTS.items() if name in options.without)
        integers, times = flat_problem(graph, options, self.allowed_variants)
        # Without in-place options the simulator's own peak is exact.
        own = options.storage == "live" and graph.pools == "units"
        self._handle = self._library.memonger_search_create(
            (ctypes.c_int64 * len(integers))(*integers), len(integers),
            (ctypes.c_double * len(times))(*times), len(times),
            -1 if own else STORAGES.index(options.storage))
        if not self._handle:
            raise SolverError("the graph %r contradicts itself; Graph.check() says where"
                              % graph.name)

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            self._library.memonger_search_free(handle)

    # ------------------------------------------------------------------ decisions
    def gaps(self) -> List[Gap]:
        """What can be decided."""
        count = self._library.memonger_search_gaps(self._handle, None)
        flat = (ctypes.c_int64 * (5 * count))()
        self._library.memonger_search_gaps(self._handle, flat)
        return [(flat[5 * i], flat[5 * i + 1], flat[5 * i + 2], flat[5 * i + 3],
                 bool(flat[5 * i + 4])) for i in range(count)]

    def unplanned(self) -> Decisions:
        """Keep everything."""
        gaps = self.gaps()
        return Decisions(tuple(2 if trailing else 0 for *_, trailing in gaps),
                         (-1,) * len(gaps), (False,) * len(self.allowed_variants))

    def decisions_of(self, schedule: Schedule) -> Decisions:
        """The decisions that come closest to a schedule; see :func:`.decisions.closest`."""
        return closest(self.graph, self.gaps(), self.allowed_variants, schedule)

    def adopt(self, other: "NativeSearch", decisions: Decisions) -> Decisions:
        """Decisions of a search that may use fewer variants, as decisions here, exactly."""
        return adopted(self.gaps(), self.allowed_variants, other.gaps(), other.allowed_variants,
                       decisions)

    def evaluate(self, decisions: Decisions) -> Optional[SearchResult]:
        """The schedule of given decisions; None when they need what must not run again."""
        valid = self._library.memonger_search_evaluate(
            self._handle, array(ctypes.c_int8, decisions.choices),
            array(ctypes.c_int32, decisions.advance),
            array(ctypes.c_int8, decisions.variants))
        return self._result(True, FINISHED) if valid else None

    # ------------------------------------------------------------------ search
    def search(self, budget_bytes: int, work: int, time_limit_s: float, seed: int = 1,
               warm: Optional[Decisions] = None, poll: Optional[Poll] = None,
               stop: Optional[ctypes.c_int32] = None, crossover: bool = False,
               heat: float = 0.0, smallest: bool = False) -> SearchResult:
        """The cheapest schedule found whose pool, workspace and objects fit ``budget_bytes``.

        Parameters
        ----------
        budget_bytes : int
        work : int
            Steps to simulate; the result depends on it, not on the clock.
        time_limit_s : float
            Guard on the clock.
        seed : int
        warm : Decisions, optional
            Where to start.
        poll : callable, optional
            Called about every millisecond. An exception in it, KeyboardInterrupt included, ends
            the search; it is raised again unless it is KeyboardInterrupt.
        stop : ctypes.c_int32, optional
            Not 0 ends the search. With it there is no poll, and so no waiting for Python's lock:
            for searches in other threads.
        crossover : bool
            Cross a population of plans, in place of annealing one.
        heat : float
            Where annealing starts, in mean costs of one recomputation; 0: as the graph asks for.
        smallest : bool
            Look for the smallest schedule from ``warm`` on, at any cost.

        Returns
        -------
        SearchResult
            Infeasible, with the least overflow, when nothing fits.
        """
        raised: List[BaseException] = []

        def call(cost: float, size: int) -> int:
            try:
                if poll is not None and not raised:
                    poll(None if cost < 0 else cost, None if size < 0 else size)
            except BaseException as error:  # noqa: B036 - ctypes cannot pass it through
                raised.append(error)
            return 1 if raised else 0

        warm = warm or self.unplanned()
        feasible = ctypes.c_int32()
        integers = (budget_bytes, seed, work, crossover, self._without, round(1000 * heat),
                    smallest)
        with interrupts.collected(raised):
            ended = self._library.memonger_search_run(
                self._handle, array(ctypes.c_int64, integers), ctypes.c_double(time_limit_s),
                array(ctypes.c_int8, warm.choices), array(ctypes.c_int32, warm.advance),
                array(ctypes.c_int8, warm.variants),
                _POLL(call) if stop is None else _POLL(),
                None if stop is None else ctypes.byref(stop),
                ctypes.byref(feasible))
        if raised and not isinstance(raised[0], KeyboardInterrupt):
            raise raised[0]
        if ended < 0:
            raise SolverError("the planner ran out of memory")
        return self._result(bool(feasible.value), ended)

    def _result(self, feasible: bool, stop: int) -> SearchResult:
        sizes, cost = (ctypes.c_int64 * 6)(), ctypes.c_double()
        self._library.memonger_search_sizes(self._handle, sizes, ctypes.byref(cost))
        steps, num_sources, peak, pool, outside_pool, above_host = sizes
        num_gaps = self._library.memonger_search_gaps(self._handle, None)
        ops, sources = _empty(ctypes.c_int32, steps), _empty(ctypes.c_int32, num_sources)
        begin = _empty(ctypes.c_int32, steps + 1)
        choices, advance = _empty(ctypes.c_int8, num_gaps), _empty(ctypes.c_int32, num_gaps)
        variants = _empty(ctypes.c_int8, len(self.allowed_variants))
        self._library.memonger_search_result(self._handle, ops, begin, sources, choices, advance,
                                             variants)
        used = tuple(index for index, on in zip(self.allowed_variants, variants) if on)
        flat = sources[:num_sources]
        schedule = Schedule(tuple(Step(ops[i], tuple(flat[begin[i]:begin[i + 1]]))
                                  for i in range(steps)), used)
        decisions = Decisions(tuple(choices[:num_gaps]), tuple(advance[:num_gaps]),
                              tuple(bool(v) for v in variants[:len(self.allowed_variants)]))
        return SearchResult(
            schedule, decisions, cost.value, peak,
            pool if pool >= 0 else peak - outside_pool, outside_pool, feasible, stop,
            bool(above_host))


def _empty(kind: Any, count: int) -> Any:
    return (kind * max(1, count))()


def _load() -> Any:
    library = core()
    library.memonger_search_create.restype = ctypes.c_void_p
    library.memonger_search_create.argtypes = [
        ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32]
    library.memonger_search_free.argtypes = [ctypes.c_void_p]
    library.memonger_search_free.restype = None
    library.memonger_search_gaps.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.memonger_search_gaps.restype = ctypes.c_int64
    library.memonger_search_evaluate.argtypes = [ctypes.c_void_p] * 4
    library.memonger_search_run.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double, ctypes.c_void_p, ctypes.c_void_p,
        ctypes.c_void_p, _POLL, ctypes.c_void_p, ctypes.c_void_p]
    library.memonger_search_sizes.argtypes = [ctypes.c_void_p] * 3
    library.memonger_search_sizes.restype = None
    library.memonger_search_result.argtypes = [ctypes.c_void_p] * 7
    library.memonger_search_result.restype = None
    library.memonger_search_tradeoffs.argtypes = [
        ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64]
    library.memonger_search_tradeoffs_found.argtypes = [ctypes.c_void_p] * 5
    library.memonger_search_tradeoffs_found.restype = None
    return library
