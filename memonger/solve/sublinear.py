"""Method "sublinear": the planner of dmlc/mxnet-memonger, without its faults.

Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174,
2016), section 4: walk the forward ops in order, add up the bytes of their outputs, and once a
threshold is passed keep the result of the next candidate as a dividing point; all else runs
again in backward. Candidates are the ops that the user hinted at with ``mirror_stage``, or every
op where there are no hints. The threshold is searched; the predicted pool decides.

Not optimal: every op between two dividing points is run again whatever it costs, about one extra
forward pass. It is the method that also works on stock MXNet, through ``force_mirroring`` alone.
"""
from __future__ import annotations

import math
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..graph import Graph
from ..mirroring import expand_mirrored, safe_to_mirror
from ..schedule import Schedule, expand
from ..storage import plan_storage


class Segments(NamedTuple):
    """Outcome of one threshold."""

    #: Forward ops to run again, legal in the world asked for.
    recomputed: Tuple[int, ...]
    #: Largest sum of output bytes between two dividing points.
    max_bytes: int
    #: Bytes of the dividing points themselves.
    saved_bytes: int


def divide(graph: Graph, threshold_bytes: int) -> Segments:
    """Choose dividing points for one threshold.

    A stage name other than "True" makes all ops of one stage share one decision, as in
    dmlc/mxnet-memonger. ``force_mirroring`` set by the user overrules: "False" keeps.
    """
    hinted = any(op.mirror_stage for op in graph.ops)
    recomputed: List[int] = []
    local_bytes = max_bytes = saved_bytes = 0
    last_stage, keep_stage = "", False
    for index, op in enumerate(graph.ops):
        if op.is_backward:
            continue
        size_bytes = sum(graph.tensors[t].size_bytes for t in op.outputs)
        local_bytes += size_bytes
        keep = False
        stage = op.mirror_stage if hinted else "True"
        if stage:
            if stage == "True" or stage != last_stage:
                keep_stage = local_bytes > threshold_bytes
                if keep_stage:
                    max_bytes = max(max_bytes, local_bytes)
                    local_bytes = 0
                last_stage = stage
            keep = keep_stage
        if keep:
            saved_bytes += size_bytes
        if (op.force_mirroring == "True" or not keep) and op.force_mirroring != "False" \
                and op.recomputable:
            recomputed.append(index)
    return Segments(tuple(recomputed), max(max_bytes, local_bytes), saved_bytes)


def schedule_of(graph: Graph, recomputed: Sequence[int], world: str) -> Tuple[Schedule, Set[int]]:
    """The schedule that a set of recomputed ops gives in a world, and the set that is legal."""
    if world == "stock":
        legal = set(safe_to_mirror(graph, set(recomputed)))
        return expand_mirrored(graph, legal), legal
    return expand(graph, {op: {} for op in recomputed}), set(recomputed)


class Trial(NamedTuple):
    """A threshold with what it gives; smaller pools sort first."""

    pool_bytes: int
    threshold_bytes: int
    recomputed: Tuple[int, ...]


def search(graph: Graph, world: str, storage: str, ntrial: int = 6,
           on_trial: Optional[Callable[[Trial, float], None]] = None) -> Trial:
    """Search thresholds for the smallest pool.

    Three guesses as in the paper, ``sqrt(saved * largest segment / 2)`` each from the one
    before, then ``ntrial`` steps on a grid between the smallest segment met and sqrt(2) times
    the last guess, then ``ntrial`` halving steps around the best.

    Parameters
    ----------
    on_trial : callable, optional
        Called after each trial with the best so far and the share of the work done.
    """
    tried: Dict[int, Trial] = {}
    best: Optional[Trial] = None
    total = 3 + 2 * ntrial

    def attempt(threshold_bytes: int) -> Segments:
        nonlocal best
        segments = divide(graph, threshold_bytes)
        if threshold_bytes not in tried:
            schedule, legal = schedule_of(graph, segments.recomputed, world)
            pool_bytes = plan_storage(graph, schedule, storage).pool_bytes
            tried[threshold_bytes] = Trial(pool_bytes, threshold_bytes, tuple(sorted(legal)))
            if best is None or tried[threshold_bytes] < best:
                best = tried[threshold_bytes]
        if on_trial:
            on_trial(best or tried[threshold_bytes], min(1.0, len(tried) / total))
        return segments

    try:
        threshold, smallest = 0, 0
        for number in range(3):
            segments = attempt(threshold)
            smallest = min(smallest, segments.max_bytes) if number else segments.max_bytes
            threshold = math.isqrt(segments.saved_bytes * segments.max_bytes // 2)
        step = int((threshold * math.sqrt(2) - smallest) / max(ntrial, 1))
        for number in range(1, ntrial + 1):
            attempt(max(0, smallest + step * number))
        width = max(abs(step), 1) // 2
        for _ in range(ntrial):
            assert best is not None
            centre = best.threshold_bytes
            for candidate in (centre - width, centre + width):
                attempt(max(0, candidate))
            width //= 2
    except KeyboardInterrupt:
        if best is None:
            raise
    assert best is not None
    return best
