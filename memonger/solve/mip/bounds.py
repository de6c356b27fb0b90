"""Proven lower bounds of the time that a budget costs.

They hold for every schedule of the class (forward ops may run again any number of times, forward
and backward order fixed) and for every storage assignment, because they count nothing but live
bytes and workspace, and let whatever may share memory share it. Pools of whole buffers, and a
CachedOp's two pools, take more than that, so bounds of theirs are lower than they could be.

Method: the program of :mod:`memonger.solve.mip.formulation` over a few constrained ops, chosen
where the unplanned step or the last solution is worst. Few windows give the best bounds (see
there), so a handful of tiny linear programs is solved and the largest bound is kept. Searches raise
it further by 0/1 programs (:mod:`memonger.solve.refining`). Without HiGHS all that is known is what
variants save at most.
"""
from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ...graph.clock import COMPUTE
from ...graph.types import Graph
from ..effort import Effort
from . import highs
from .formulation import build
from .implementations import allowed_variants
from .live_bytes import needed_live, unplanned_live
from .problem import Reduced, reduce_graph
from .streams import waiting_s

#: Up to so many groups of values (the first numbers) backward has so many pieces (the second) in
#: the program with spans, which raises ResNet-50's bound at 20 % from 16.9 to 20.6 % in a second.
_SPAN_PIECES = ((400, 8), (900, 5), (2000, 3))
#: What such a program takes to be built, as a share of what it takes to be solved.
_SPAN_BUILDING = 0.15
#: Counted seconds that each group and piece of such a program take to be solved at least.
_SPAN_LEAST_S = 1.5e-4


class LowerBound(NamedTuple):
    """A lower bound and how it was found."""

    #: Extra time of the step, in the graph's units; ``inf`` when no plan can fit.
    extra_s: float
    #: "linear", "integer" or "none", with the number of constrained ops.
    how: str
    #: The constrained ops that gave it.
    constrained: Tuple[int, ...] = ()


def free_bound(graph: Graph, variants: str) -> float:
    """Bound of the overhead without any budget: what the fastest variant of each op saves.

    A share of the step time, as in ``Plan``; 0 where no op has a time.
    """
    saved_s = _most_saved(graph, allowed_variants(graph, variants))
    return saved_s / graph.time_s if graph.time_s > 0 else 0.0


def _most_saved(graph: Graph, variants: Sequence[int]) -> float:
    """Time, at most zero, that variants which do not touch the same ops can add at least.

    What a variant saves is shared out among those of its ops that get faster. With several streams
    compute alone counts, and need not wait as it does in the unplanned step.
    """
    if not variants:
        return 0.0
    least: Dict[int, float] = {}
    for number in variants:
        added = [(implementation.time_s - graph.ops[op].time_s, op)
                 for op, implementation in graph.implementations_of(number)
                 if graph.ops[op].stream == COMPUTE]
        total_s = sum(added_s for added_s, _ in added)
        saved_s = sum(min(added_s, 0.0) for added_s, _ in added)
        for added_s, op in added if total_s < 0 else ():
            least[op] = min(least.get(op, 0.0), added_s * total_s / saved_s)
    return float(sum(least.values())) - waiting_s(graph)


def overhead_bound(graph: Graph, pool_budget_bytes: float, variants: str = "none",
                   keep: Sequence[int] = (), effort: Optional[Effort] = None,
                   reduced: Optional[Reduced] = None, rounds: int = 8) -> LowerBound:
    """Smallest extra time that any plan of the class can have.

    Parameters
    ----------
    graph : Graph
    pool_budget_bytes : float
        Bytes for pooled tensors, and for what the workspace takes beyond the least that variants
        can give.
    variants : str
        Variants that plans may use: "none", "exact" or "all".
    keep : sequence of int
        Ops that must not run again.
    effort : Effort, optional
        How much work to put into the bound; one is returned in any case.
    reduced : Reduced, optional
        The graph reduced with the same ``variants`` and ``keep``, when at hand.
    rounds : int
        Linear programs to try.

    Returns
    -------
    LowerBound
        Extra seconds over the unplanned step (negative only where variants save time).
    """
    effort = effort or Effort(1.0)
    if reduced is None:
        reduced = reduce_graph(graph, variants, keep)
    if not reduced.num_ops:
        return LowerBound(0.0, "none")
    if needed_live(reduced).max() > pool_budget_bytes:
        return LowerBound(float("inf"), "operands of one op", (int(needed_live(reduced).argmax()),))
    if unplanned_live(reduced).max() <= pool_budget_bytes and not reduced.variants:
        return LowerBound(0.0, "unplanned")
    best = LowerBound(_most_saved(reduced.graph, reduced.variants), "none")
    if not highs.available():
        return best
    for number, constrained in enumerate(_candidates(reduced, pool_budget_bytes, rounds)):
        if number and effort.left_s <= 0:
            break
        program = build(reduced, constrained, pool_budget_bytes)
        solution = highs.solve_linear(program, effort)
        if solution.bound > best.extra_s:
            best = LowerBound(solution.bound, "linear, %d constrained" % len(constrained),
                              tuple(constrained))
        if best.extra_s == float("inf"):
            break
    return best


def span_bound(reduced: Reduced, pool_budget_bytes: float, effort: Effort) -> LowerBound:
    """One linear program over many windows, with rows over spans of them.

    Windows alone lose what a rerun serves in several of them (:mod:`memonger.solve.mip.spans`), so
    more windows give a higher bound only together with spans. None where the program takes more
    than half of the work that is left: the search for plans has the other half.
    """
    groups = len(reduced.size_bytes)
    pieces = next((pieces for most, pieces in _SPAN_PIECES if groups <= most), 0)
    if not highs.available() or not groups or not pieces:
        return LowerBound(float("-inf"), "none")
    if _SPAN_LEAST_S * groups * pieces > effort.left_s / 2:
        return LowerBound(float("-inf"), "none")
    constrained = constrained_in_pieces(reduced, pieces)
    program = build(reduced, constrained, pool_budget_bytes, spans=spans_of(reduced, constrained))
    needed_s, left_s = highs.linear_s(program), effort.left_s
    effort.spend(_SPAN_BUILDING * needed_s)
    if needed_s > left_s / 2:
        return LowerBound(float("-inf"), "none")
    solution = highs.solve_linear(program, effort)
    return LowerBound(solution.bound, "linear, %d constrained, spans" % len(constrained),
                      tuple(constrained))


def constrained_in_pieces(reduced: Reduced, pieces: int) -> List[int]:
    """The op of most operands in each of so many pieces of backward, and the unplanned peak."""
    return _worst_of_pieces(reduced, needed_live(reduced), pieces,
                            int(np.argmax(unplanned_live(reduced))))


def spans_of(reduced: Reduced, constrained: Sequence[int]) -> List[Tuple[int, int]]:
    """Spans of windows: from the first on, up to the last, and halves that overlap."""
    first = int(np.searchsorted(constrained, reduced.first_backward)) + 1
    last = len(constrained) + 1
    spans = {(first, end) for end in range(first + 1, last + 1)}
    spans |= {(begin, last) for begin in range(first + 1, last)}
    size = 2
    while size < last - first + 1:
        spans |= {(begin, min(last, begin + size - 1)) for begin in range(first, last, size // 2)}
        size *= 2
    return sorted(spans)


def _candidates(reduced: Reduced, budget_bytes: float, rounds: int) -> List[List[int]]:
    """Sets of constrained ops worth trying, best guesses first."""
    live = unplanned_live(reduced)
    needed = needed_live(reduced)
    peak = int(np.argmax(live))
    sets: List[List[int]] = [[peak]]
    for pieces in (3, 2, 5, 8, 12, 18, 26, 40):
        sets.extend(_worst_of_pieces(reduced, weight, pieces, peak) for weight in (live, needed))
    unique: List[List[int]] = []
    for ops in sets:
        if ops not in unique:
            unique.append(ops)
    return unique[:rounds]


def _worst_of_pieces(reduced: Reduced, weight: np.ndarray, pieces: int, peak: int) -> List[int]:
    """The op of most weight in each of so many pieces of backward, and the unplanned peak."""
    count = reduced.num_ops
    start = min(reduced.first_backward, count - 1)
    edges = np.linspace(start, count, pieces + 1).round().astype(int)
    return sorted({peak} | {
        int(a + np.argmax(weight[a:b])) for a, b in zip(edges[:-1], edges[1:]) if b > a})
