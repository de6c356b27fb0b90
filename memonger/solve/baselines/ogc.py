"""Method "ogc": optimal checkpoints for the sum of checkpoints and the largest segment.

Feng and Huang, "Optimal Gradient Checkpoint Search for Arbitrary Computation Graphs" (CVPR 2021)
choose the checkpoints that minimise

    bytes of all checkpoints + bytes of the largest segment between them,

every segment being run again once. As in the paper, the largest segment is tried at each possible
size and a shortest path over the places to cut, with the segments of at most that size as edges,
gives the best checkpoints for it.

This implementation cuts between ops of the forward order; a cut keeps every value that crosses it.
On chains, and wherever segments follow each other, that is the paper's optimum; parallel branches
are cut together, where the paper may also cut one alone. O(n^2) for each size tried; at most
``_SIZES`` sizes are tried, spread over all of them. No budget and no times enter.
"""
from __future__ import annotations

from typing import List, Optional, Tuple

import numpy as np

from ...graph.cache import Cache
from ...graph.schedule import expand
from ...graph.types import Graph
from ...plans.plan import Plan
from ..effort import Effort
from ..options import Options
from ..result import build_plan
from .chen import forward_ops, last_forward_use, recompute_inside

#: How many sizes of the largest segment are tried.
_SIZES = 64
#: The best cuts of each graph.
_CUTS: Cache[Tuple[List[int], int]] = Cache()
#: Counted seconds of the method, for each op of the graph.
_S_PER_OP = 3e-4


class _Places:
    """Bytes inside segments and across cuts; position i lies behind the i-th forward op."""

    def __init__(self, graph: Graph):
        self.ops = forward_ops(graph)
        position = {op: i for i, op in enumerate(self.ops)}
        self.bytes = np.array([sum(graph.tensors[t].size_bytes for t in graph.ops[op].outputs
                                   if graph.tensors[t].pooled) for op in self.ops], np.int64)
        self.last = np.array([position[last_forward_use(graph, op)] for op in self.ops], np.int64)

    def segments_to(self, end: int) -> Tuple[np.ndarray, np.ndarray]:
        """Bytes inside each segment of the ops start..end, and bytes crossing it.

        Two arrays (end + 1,) int64, by start.
        """
        crosses = self.last[:end + 1] > end
        sizes = self.bytes[:end + 1]
        crossing = np.cumsum((sizes * crosses)[::-1])[::-1]
        inside = np.cumsum((sizes * ~crosses)[::-1])[::-1]
        return inside, crossing


def best_cuts(graph: Graph) -> Tuple[List[int], int]:
    """The ops that end a segment, and the objective's value in bytes.

    O(sizes * n^2) time, O(n^2) at once.
    """
    places = _Places(graph)
    count = len(places.ops)
    if count == 0:
        return [], 0
    columns = [places.segments_to(end) for end in range(count)]
    sizes = np.unique(np.concatenate([inside for inside, _ in columns]))
    most = max(4, min(_SIZES, 64 * 1000 ** 2 // count ** 2))
    if len(sizes) > most:
        sizes = sizes[np.unique(np.linspace(0, len(sizes) - 1, most).astype(int))]
    best_value, best = None, []
    for largest in sizes:
        path = _shortest(columns, int(largest))
        if path is not None and (best_value is None or path[0] + largest < best_value):
            best_value, best = path[0] + int(largest), path[1]
    assert best_value is not None  # the largest size allows a single segment
    return [places.ops[i] for i in best], best_value


def _shortest(columns: List[Tuple[np.ndarray, np.ndarray]],
              largest: int) -> Optional[Tuple[int, List[int]]]:
    # cost[i]: least bytes of checkpoints when a segment starts at op i.
    count = len(columns)
    unreachable = np.iinfo(np.int64).max // 4
    cost = np.full(count + 1, unreachable, np.int64)
    cost[0] = 0
    start_of = np.zeros(count + 1, np.int64)
    for end in range(count):
        inside, crossing = columns[end]
        total = np.where(inside <= largest, cost[:end + 1] + crossing, unreachable)
        start = int(np.argmin(total))
        if total[start] < cost[end + 1]:
            cost[end + 1], start_of[end + 1] = total[start], start
    if cost[count] >= unreachable:
        return None
    cuts, at = [], int(start_of[count])
    while at > 0:
        cuts.append(at - 1)
        at = int(start_of[at])
    return int(cost[count]), cuts[::-1]


def counted_s(graph: Graph) -> float:
    """Counted seconds of the method."""
    return _S_PER_OP * len(graph.ops)


def solve(graph: Graph, budget_bytes: Optional[int], options: Options) -> Plan:
    """The signature of all solvers; see :func:`memonger.solve.solve`."""
    Effort(options.time_limit_s, options.account).spend(counted_s(graph))
    cuts, value = _CUTS.of(graph, None, lambda: best_cuts(graph))
    schedule = expand(graph, recompute_inside(graph, cuts, options))
    return build_plan(graph, schedule, "ogc", options, budget_bytes,
                      notes=("%d checkpoints, objective %d bytes" % (len(cuts), value),))
