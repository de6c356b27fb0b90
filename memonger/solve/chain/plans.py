"""Plans of a graph's chain for any budget."""
from __future__ import annotations

from typing import Iterator, List, Optional

from ...graph.types import Graph
from ..effort import STEPS_PER_S, Effort
from ..options import Options
from ..search.local import LEAST_OPS
from ..search.native import Found, NativeSearch
from .program import Chain, ChainPlan, decisions_of
from .segments import Boundary, find_boundaries, segments_of
from .tradeoffs import find_tradeoffs

#: Boundaries that a chain has at least.
_LEAST_BOUNDARIES = 4
#: Steps simulated for the trade-offs of all segments; graphs below ``LEAST_OPS`` ops get their
#: share.
_STEPS = 60e6
#: Budgets tried until a chain's plan fits.
_TRIES = 4


def boundaries_of(graph: Graph, options: Options) -> List[Boundary]:
    """Where a graph can be cut; empty where it cannot, or has two pools."""
    if graph.pools == "cached_op" or options.backend != "plugin":
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
    """

    def __init__(self, graph: Graph, native: NativeSearch, chain: Chain):
        self.graph = graph
        self.native = native
        self.chain = chain

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
            Where the work for the segments is counted; None without enough of it.
        """
        share = min(1.0, len(graph.ops) / LEAST_OPS)
        work = int(_STEPS * share * options.effort)
        if effort.steps < work:
            return None
        boundaries = boundaries_of(graph, options)
        if not boundaries:
            return None
        effort.spend(work / STEPS_PER_S)
        segments = segments_of(graph, boundaries)
        tradeoffs = find_tradeoffs(segments, options, work)
        return cls(graph, native, Chain(boundaries, segments, tradeoffs, graph.num_forward))

    def plans(self, pool_bytes: int) -> Iterator[Found]:
        """Plans for a pool, each for less live bytes than the one before, until one fits.

        The chain counts neither what an arena or whole buffers lose between values, nor values that
        are kept for a short while where segments meet.
        """
        target, lost = pool_bytes, 0
        for _ in range(_TRIES):
            candidate = self._evaluated(self.chain.plan(target))
            if candidate is None:
                return
            yield candidate
            if candidate.pool_bytes <= pool_bytes:
                return
            lost = max(candidate.pool_bytes - target, lost + pool_bytes // 100)
            target = pool_bytes - lost

    def smallest(self) -> Optional[Found]:
        """The plan for the least live bytes that the chain knows."""
        plan, low, high = None, 0, sum(t.size_bytes for t in self.graph.tensors if t.pooled)
        while high - low > max(1, high // 1000):
            middle = (low + high) // 2
            tried = self.chain.plan(middle)
            if tried is None:
                low = middle
            else:
                plan, high = tried, middle
        return self._evaluated(plan)

    def _evaluated(self, plan: Optional[ChainPlan]) -> Optional[Found]:
        return None if plan is None else \
            self.native.evaluate(decisions_of(self.graph, self.native, plan))
