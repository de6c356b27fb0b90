"""Plans of a graph's chain for any budget."""
from __future__ import annotations

import math
from typing import Iterator, List, Optional

from ...graph.types import Graph
from ...graph.working_set import working_bytes
from ..effort import STEPS_PER_S, Effort
from ..options import Options
from ..search.decisions import SearchResult
from ..search.local import LEAST_OPS
from ..search.native import NativeSearch
from .program import Chain, ChainPlan, decisions_of
from .segments import Boundary, find_boundaries, segments_of
from .tradeoffs import find_tradeoffs

#: Boundaries that a chain has at least.
_LEAST_BOUNDARIES = 4
#: Counted seconds for the trade-offs of all segments; graphs below ``LEAST_OPS`` ops get their
#: share, searches with little left half of that.
_TRADEOFFS_S = 3.0
#: Counted seconds of a simulated step of a segment: twice that of a native search, as the plans of
#: a segment are compared with all others.
_S_PER_STEP = 2.0 / STEPS_PER_S
#: Counted seconds that each op of each segment takes to be cut out.
_CUT_S_PER_OP = 2e-5
#: How many budgets are tried until a chain's plan fits.
_TRIES = 4


def boundaries_of(graph: Graph, options: Options) -> List[Boundary]:
    """Where a graph can be cut; empty where it cannot, or has two pools."""
    if graph.pools == "cached_op":
        return []
    boundaries = find_boundaries(graph)
    return boundaries if len(boundaries) >= _LEAST_BOUNDARIES else []


class ChainPlans:
    """A graph's chain, with the native search that evaluates its plans.

    Parameters
    ----------
    graph : Graph
    native : NativeSearch
        Of the graph.
    chain : Chain
    effort : Effort
        Where the work for plans is counted.
    """

    def __init__(self, graph: Graph, native: NativeSearch, chain: Chain, effort: Effort):
        self.graph = graph
        self.native = native
        self.chain = chain
        self.effort = effort

    @classmethod
    def of(cls, graph: Graph, options: Options, native: NativeSearch, effort: Effort
           ) -> Optional["ChainPlans"]:
        """The chain of a graph; None where it cannot be cut, or has two pools.

        Parameters
        ----------
        graph : Graph
        options : Options
        native : NativeSearch
            Of the graph and the options.
        effort : Effort
            Where the work is counted; None without enough of it.
        """
        usual_s = _TRADEOFFS_S * min(1.0, len(graph.ops) / LEAST_OPS) * options.effort
        seconds = min(usual_s, effort.left_s / 2)
        boundaries = boundaries_of(graph, options)
        if not boundaries or seconds < usual_s / 4:
            return None
        segments = segments_of(graph, boundaries)
        effort.spend(seconds + _CUT_S_PER_OP * sum(len(segment.ops) for segment in segments))
        tradeoffs = find_tradeoffs(segments, options, int(seconds / _S_PER_STEP))
        return cls(graph, native, Chain(boundaries, segments, tradeoffs, graph.first_backward),
                   effort)

    def plans(self, pool_bytes: int) -> Iterator[SearchResult]:
        """Plans for a pool, each for less live bytes than the one before, until one fits.

        The chain counts neither what an arena or whole buffers lose between values, nor values that
        are kept for a short while where segments meet.
        """
        target, lost = pool_bytes, 0
        for _ in range(_TRIES):
            candidate = self._evaluated(self._plan(target))
            if candidate is None:
                return
            yield candidate
            if candidate.pool_bytes <= pool_bytes:
                return
            lost = max(candidate.pool_bytes - target, lost + pool_bytes // 100)
            target = pool_bytes - lost

    def smallest(self, below_bytes: int, most_extra_s: float = math.inf) -> Optional[SearchResult]:
        """The plan for about the least live bytes that the chain knows at so much extra time.

        None where none takes less than ``below_bytes``.
        """
        plan, high = None, below_bytes
        low = max(working_bytes(self.graph, op) for op in self.graph.ops)
        while high - low > max(1, high // 250):
            middle = max(low + 1, math.isqrt(low * high))  # each step halves the ratio
            tried = self._plan(middle)
            if tried is None or tried.extra_s > most_extra_s:
                low = middle
            else:
                plan, high = tried, middle
        return self._evaluated(plan)

    def _plan(self, pool_bytes: int) -> Optional[ChainPlan]:
        self.effort.spend(self.chain.planning_s)
        return self.chain.plan(pool_bytes)

    def _evaluated(self, plan: Optional[ChainPlan]) -> Optional[SearchResult]:
        return None if plan is None else \
            self.native.evaluate(decisions_of(self.graph, self.native, plan))
