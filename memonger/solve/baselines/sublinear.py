"""Method "sublinear": the planner of dmlc/mxnet-memonger, without its faults.

Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174,
2016), section 4: walk the forward ops in order, add up the bytes of their outputs, and once a
threshold is passed keep the result of the next candidate as a dividing point; all else runs
again in backward. Candidates are the ops that the user hinted at with ``mirror_stage``. Where there
are no hints both the cut points of the network and every op are tried. The threshold is
searched; the predicted pool decides.

Not optimal: every op between two dividing points is run again whatever it costs, about one extra
forward pass.
"""
from __future__ import annotations

import math
import time
from typing import (
    AbstractSet,
    Dict,
    FrozenSet,
    Generator,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

from ...graph.cache import Cache
from ...graph.schedule import Schedule, expand
from ...graph.types import Graph
from ...memory.storage import pool_bytes
from ...memory.workspace import outside_pool_bytes
from ...plans.plan import Plan, Progress, Status
from ..effort import Effort
from ..options import Options
from ..result import build_plan, total_bytes, unplanned

#: Counted seconds of a trial, for each op.
_TRIAL_S_PER_OP = 4e-5


class Segments(NamedTuple):
    """Outcome of one threshold."""

    #: Forward ops to run again.
    recomputed: Tuple[int, ...]
    #: Largest sum of output bytes between two dividing points.
    max_bytes: int
    #: Bytes of the dividing points themselves.
    saved_bytes: int


def cut_points(graph: Graph) -> FrozenSet[int]:
    """Forward ops whose results are all that later forward ops read of what came before.

    Between two of them lies a part of the network that can run again from one kept value.
    Linear time: behind such an op nothing is read that was made before it.
    """
    last_reader = [max([r for r in readers if not graph.ops[r].is_backward], default=-1)
                   for readers in graph.consumers]
    points = set()
    furthest = -1  # last forward reader of anything made so far, the op at hand excepted
    for index, op in enumerate(graph.ops):
        if op.is_backward:
            continue
        if furthest <= index:
            points.add(index)
        furthest = max([furthest] + [last_reader[t] for t in op.outputs])
    return frozenset(points)


def divide(graph: Graph, threshold_bytes: int,
           candidates: Optional[AbstractSet[int]] = None) -> Segments:
    """Choose dividing points for one threshold.

    A stage name other than "True" makes all ops of one stage share one decision, as in
    dmlc/mxnet-memonger. ``force_mirroring`` set by the user overrules: "False" keeps.

    Parameters
    ----------
    candidates : set of int, optional
        The ops that may be kept where there are no hints; default every op.
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
        stage = op.mirror_stage
        if not hinted and (candidates is None or index in candidates):
            stage = "True"
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


def thresholds(graph: Graph, ntrial: int) -> Iterator[Tuple[int, ...]]:
    """Sets of ops to run again, one for each distinct threshold worth a trial."""
    seen: Set[Tuple[int, ...]] = set()
    hinted = any(op.mirror_stage for op in graph.ops)
    choices: List[Optional[FrozenSet[int]]] = [None] if hinted else [cut_points(graph), None]
    for candidates in choices:
        whole = sum(t.size_bytes for t in graph.tensors if t.pooled)
        for number in range(3 + 2 * ntrial):
            segments = divide(graph, int(whole * math.sqrt(0.5) ** (number + 2)), candidates)
            if segments.recomputed and segments.recomputed not in seen:
                seen.add(segments.recomputed)
                yield segments.recomputed


def schedule_of(graph: Graph, recomputed: Iterable[int]) -> Schedule:
    """The schedule that runs these ops again."""
    return expand(graph, {op: {} for op in recomputed})


class Trial(NamedTuple):
    """A threshold with what it gives; smaller pools sort first."""

    pool_bytes: int
    time_s: float
    threshold_bytes: int
    recomputed: Tuple[int, ...]


#: Trials by the ops that they recompute, for each storage and set of pins.
_TRIALS: Cache[Dict[Tuple[int, ...], Trial]] = Cache()


def search(graph: Graph, options: Options) -> Iterator[Tuple[Trial, float]]:
    """Search thresholds for the smallest pool: each trial, with the share of the work done by then.

    Three guesses as in the paper, ``sqrt(saved * largest segment / 2)`` each from the one
    before, then ``ntrial`` steps on a grid between the smallest segment met and sqrt(2) times
    the last guess, then ``ntrial`` pairs of halving steps around the best.

    Parameters
    ----------
    options : Options
        ``storage``, ``ntrial``, ``keep``, ``recompute`` and ``time_limit_s`` matter; when the time
        is over, there are no more trials.
    """
    hinted = any(op.mirror_stage for op in graph.ops)
    families: List[Optional[FrozenSet[int]]] = [None] if hinted else [cut_points(graph), None]
    # Near thresholds often choose the same ops.
    by_choice = _TRIALS.of(graph, (options.storage, options.keep, options.recompute), dict)
    effort = Effort(options.time_limit_s, options.account)
    for number, candidates in enumerate(families):
        for trial, share in _search_family(graph, options, candidates, by_choice, effort):
            yield trial, (number + share) / len(families)
            if effort.left_s <= 0:
                return


def _search_family(graph: Graph, options: Options, candidates: Optional[FrozenSet[int]],
                   by_choice: Dict[Tuple[int, ...], Trial],
                   effort: Effort) -> Iterator[Tuple[Trial, float]]:
    keep, again, ntrial = set(options.keep), set(options.recompute), options.ntrial
    known: Dict[int, Segments] = {}
    counted: Set[Tuple[int, ...]] = set()
    mine: List[Trial] = []
    total = 3 + 3 * ntrial

    def attempt(threshold_bytes: int) -> Generator[Tuple[Trial, float], None, Segments]:
        if threshold_bytes not in known:
            segments = known[threshold_bytes] = divide(graph, threshold_bytes, candidates)
            if segments.recomputed not in counted:
                counted.add(segments.recomputed)
                effort.spend(_TRIAL_S_PER_OP * len(graph.ops))
            if segments.recomputed not in by_choice:
                ops = tuple(sorted((set(segments.recomputed) | again) - keep))
                schedule = schedule_of(graph, ops)
                by_choice[segments.recomputed] = Trial(
                    pool_bytes(graph, schedule, options.storage),
                    schedule.time_s(graph), threshold_bytes, ops)
            mine.append(by_choice[segments.recomputed]._replace(threshold_bytes=threshold_bytes))
            yield mine[-1], min(1.0, len(known) / total)
        return known[threshold_bytes]

    threshold, smallest = 0, 0
    for number in range(3):
        segments = yield from attempt(threshold)
        smallest = min(smallest, segments.max_bytes) if number else segments.max_bytes
        threshold = math.isqrt(segments.saved_bytes * segments.max_bytes // 2)
    step = int((threshold * math.sqrt(2) - smallest) / max(ntrial, 1))
    for number in range(1, ntrial + 1):
        yield from attempt(max(0, smallest + step * number))
    width = max(abs(step), 1) // 2
    for _ in range(ntrial):
        centre = min(mine).threshold_bytes
        for candidate in (centre - width, centre + width):
            yield from attempt(max(0, candidate))
        width //= 2


def solve(graph: Graph, budget_bytes: Optional[int], options: Options) -> Plan:
    """The best threshold: the smallest pool, or the least time within ``budget_bytes``.

    Never larger than no plan: where no threshold helps, nothing runs again.
    """
    started_s = time.perf_counter()
    trials: List[Trial] = []
    interrupted = False
    try:
        for trial, fraction in search(graph, options):
            trials.append(trial)
            if options.progress:
                best = min(trials)
                base_s = graph.time_s
                size_bytes = best.pool_bytes + outside_pool_bytes(graph)
                options.progress(Progress("searching", time.perf_counter() - started_s,
                                          total_bytes(options, size_bytes),
                                          best.time_s / base_s - 1 if base_s > 0 else 0.0,
                                          fraction=fraction, own_units=graph.own_units))
    except KeyboardInterrupt:
        if not trials:
            raise
        interrupted = True
    best = min(trials)
    if budget_bytes is not None:
        best = min((t for t in trials if t.pool_bytes <= budget_bytes),
                   key=lambda t: (t.time_s, t), default=best)
    plan = build_plan(graph, schedule_of(graph, best.recomputed), "sublinear", options,
                      budget_bytes, notes=(
        "dividing points every %s" % graph.format_size(best.threshold_bytes),))
    nothing = build_plan(graph, unplanned(graph), "sublinear", options, budget_bytes,
                         Status.NOT_NEEDED)
    if nothing.pool_bytes <= plan.pool_bytes and not options.recompute:
        plan = nothing
    return plan.changed(status=Status.INTERRUPTED) if interrupted else plan
