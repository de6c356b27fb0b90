"""Method "brute": try everything. The oracle for graphs of a dozen ops.

Where units of other planners count (``graph.pools == "units"``) it is a shortest path over (ops
done, values alive), which covers every schedule that runs forward ops again in backward only. On
MXNet graphs it evaluates all decisions of the native search, so it is the optimum of that class
under the storage model asked for.
"""
from __future__ import annotations

import heapq
import itertools
from typing import Dict, List, Optional, Tuple

from memonger.graph.schedule import Schedule, Step
from memonger.graph.types import Graph
from memonger.memory.workspace import outside_pool_bytes
from memonger.plans.plan import Plan, Status
from memonger.solve import Options, register
from memonger.solve.result import build_plan, unplanned
from memonger.solve.search.decisions import Decisions, SearchResult
from memonger.solve.search.native import NativeSearch
from memonger.util.errors import InputError

_MOST_OPS = 14
_MOST_DECISIONS = 200000

#: (number of first runs done, values alive as bits).
_State = Tuple[int, int]


def solve(graph: Graph, budget_bytes: Optional[int], options: Options) -> Plan:
    """The signature of all solvers; see :func:`memonger.solve.solve`.

    Raises
    ------
    InputError
        If the graph is too large.
    """
    if graph.pools == "units" and budget_bytes is not None:
        schedule = _any_schedule(graph, budget_bytes, options)
    else:
        schedule = _all_decisions(graph, budget_bytes, options)
    if schedule is None:
        schedule = _smallest(graph, budget_bytes or 0, options)
    return build_plan(graph, schedule, "brute", options, budget_bytes, Status.OPTIMAL)


def _smallest(graph: Graph, budget_bytes: int, options: Options) -> Schedule:
    # Nothing fits: the schedule with the least memory, by bisection.
    best, low = unplanned(graph), budget_bytes
    high = build_plan(graph, best, "brute", options, None).pool_bytes
    while high - low > 1:
        middle = (low + high) // 2
        found = _any_schedule(graph, middle, options)
        if found is None:
            low = middle
        else:
            best, high = found, middle
    return best


def _any_schedule(graph: Graph, budget_bytes: int, options: Options) -> Optional[Schedule]:
    """Dijkstra's algorithm; actions run an op or forget a value."""
    count = len(graph.ops)
    if count > _MOST_OPS:
        raise InputError("brute force is for at most %d ops, not %d" % (_MOST_OPS, count))
    sizes = [t.size_bytes if t.pooled else 0 for t in graph.tensors]
    reads = [sum({1 << t for t in op.inputs}) for op in graph.ops]
    makes = [sum({1 << t for t in op.outputs}) for op in graph.ops]
    before = sum(1 << i for i, t in enumerate(graph.tensors) if t.producer < 0)
    lasting = sum({1 << t for t in graph.outputs}) | before
    used = sum({1 << t for op in graph.ops for t in op.inputs}) | lasting

    def size(alive: int) -> int:
        return sum(s for i, s in enumerate(sizes) if alive >> i & 1)

    start: _State = (0, before)
    cost_s: Dict[_State, float] = {start: 0.0}
    came: Dict[_State, Tuple[_State, int]] = {}
    queue: List[Tuple[float, _State]] = [(0.0, start)]
    while queue:
        spent_s, state = heapq.heappop(queue)
        if spent_s > cost_s[state]:
            continue
        done, alive = state
        if done == count:
            return _walk(graph, state, came)
        moves = [(0.0, -1, (done, alive & ~(1 << t))) for t in range(len(sizes))
                 if alive >> t & 1 and not lasting >> t & 1]
        for op in range(done + 1):
            again = op < done
            if again and (not graph.ops[done].is_backward or not graph.ops[op].recomputable
                          or op in options.keep or not makes[op] & ~alive):
                continue
            if reads[op] & ~alive or size(alive | makes[op]) > budget_bytes:
                continue
            after = (alive | makes[op]) & used
            moves.append((graph.ops[op].time_s, op, (done + (not again), after)))
        for time_s, op, after_state in moves:
            total_s = spent_s + time_s
            if total_s < cost_s.get(after_state, float("inf")):
                cost_s[after_state] = total_s
                came[after_state] = (state, op)
                heapq.heappush(queue, (total_s, after_state))
    return None


def _walk(graph: Graph, state: _State, came: Dict[_State, Tuple[_State, int]]) -> Schedule:
    ops: List[int] = []
    while state in came:
        state, op = came[state]
        if op >= 0:
            ops.append(op)
    latest: Dict[int, int] = {}
    steps: List[Step] = []
    for op in reversed(ops):
        makers = [graph.tensors[t].producer for t in graph.ops[op].inputs]
        latest_op = len(steps)
        steps.append(Step(op, tuple(latest[m] if m >= 0 else -1 for m in makers)))
        latest[op] = latest_op
    return Schedule(tuple(steps))


def _all_decisions(graph: Graph, budget_bytes: Optional[int],
                   options: Options) -> Optional[Schedule]:
    core = NativeSearch(graph, options)
    gaps = core.gaps()
    count = 3 ** len(gaps) * 2 ** len(core.allowed_variants)
    if count > _MOST_DECISIONS:
        raise InputError("brute force is for at most %d decisions, not %d"
                         % (_MOST_DECISIONS, count))
    most_s = float("inf")
    if options.max_overhead is not None:
        most_s = graph.time_s * (1 + options.max_overhead) * (1 + 1e-12)
    room = None if budget_bytes is None else budget_bytes + outside_pool_bytes(graph)
    best: Optional[SearchResult] = None
    best_key: Tuple[float, float] = (0, 0)
    for choices in itertools.product(range(3), repeat=len(gaps)):
        for variants in itertools.product((False, True), repeat=len(core.allowed_variants)):
            if _overlap(core, variants):
                continue
            found = core.evaluate(Decisions(choices, (-1,) * len(gaps), variants))
            if found is None or found.cost_s > most_s:
                continue
            size = found.pool_bytes + found.outside_pool_bytes
            # What fits comes first, by time; else by bytes.
            over = 0 if room is not None and size <= room else size
            key = (over, found.cost_s)
            if best is None or key < best_key:
                best, best_key = found, key
    return None if best is None else best.schedule


def _overlap(core: NativeSearch, variants: Tuple[bool, ...]) -> bool:
    touched = [op for index, on in zip(core.allowed_variants, variants) if on
               for op, _ in core.graph.variants[index].choices]
    return len(touched) != len(set(touched))


register("brute", solve)
