"""The dynamic program over a chain (``plugins/core/chain.h``), and its plans as decisions.

A value that the plan keeps for backward is at hand from the forward run of its segment that comes
right before backward on: from the first run, or from the backward op at which an outer range of the
chain comes to its end. That is all a decision of the native search can say, and so the plan is
written down exactly.
"""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ...graph.types import Graph
from ...util.errors import SolverError
from ...util.native_libraries import array, core
from ..search.decisions import Decisions
from ..search.native import NativeSearch
from .segments import Boundary, Segment
from .tradeoffs import Tradeoff, Tradeoffs

#: A budget is counted in so many equal parts.
_LEVELS = 1000
#: Counted seconds for a trade-off at one level of the budget and one boundary.
_S_PER_CELL = 1.3e-10
#: The decision to keep a value through a gap, as the library numbers choices.
_KEEP = 0
#: The decision to drop a value after each use and make it again for the next one.
_TRANSIENT = 2


@dataclass(frozen=True)
class Placed:
    """A segment of the plan."""

    segment: Segment
    tradeoffs: Tradeoffs
    #: The one that is taken.
    tradeoff: Tradeoff
    #: The backward op before which its values are made for backward; 0: in forward.
    made_at: int


@dataclass(frozen=True)
class ChainPlan:
    """The best plan of a chain for one budget."""

    extra_s: float
    placed: Sequence[Placed]
    #: Checkpoints by number of their boundary: as ``Placed.made_at``.
    stored: Mapping[int, int]


class Chain:
    """A graph as a chain of segments, ready for any budget.

    Parameters
    ----------
    boundaries : sequence of Boundary
    segments : sequence of Segment
    tradeoffs : mapping
        Those of each segment by its boundaries.
    first_backward : int
        The first backward op of the graph.
    """

    def __init__(self, boundaries: Sequence[Boundary], segments: Sequence[Segment],
                 tradeoffs: Mapping[Tuple[int, int], Tradeoffs], first_backward: int):
        self.boundaries = boundaries
        #: The op at which the backward of the segments that end at each boundary begins.
        self._backward = [*(boundary.backward for boundary in boundaries), first_backward]
        self.segments = segments
        self.tradeoffs = [tradeoffs[segment.begin, segment.end] for segment in segments]
        rows: List[int] = []
        flat: List[int] = []
        extra: List[float] = []
        for segment, known in zip(segments, self.tradeoffs):
            gradient = segment.gradient_bytes
            rows += [segment.begin, segment.end, known.transient_peak_bytes, gradient,
                     len(known.all)]
            for tradeoff in known.all:
                peak = tradeoff.backward_peak_bytes
                if not tradeoff.nothing_kept:
                    peak = max(peak, tradeoff.forward_peak_bytes + gradient)
                flat += [tradeoff.kept_bytes, peak, tradeoff.nothing_kept]
                extra.append(tradeoff.extra_s)
        #: As ``memonger_chain_solve`` takes them.
        self._flat = (array(ctypes.c_int64, [boundary.size_bytes for boundary in boundaries]),
                      len(segments), array(ctypes.c_int64, rows),
                      array(ctypes.c_double, [segment.forward_s for segment in segments]),
                      array(ctypes.c_int64, flat), array(ctypes.c_double, extra))

    @property
    def planning_s(self) -> float:
        """Counted seconds of a plan."""
        return _S_PER_CELL * _LEVELS * len(self.boundaries) * sum(
            len(known.all) for known in self.tradeoffs)

    def plan(self, pool_bytes: int) -> Optional[ChainPlan]:
        """The cheapest plan in so many bytes; None where the chain has none.

        O(n^2 (n + trade-offs)) time for n segments.
        """
        count = len(self.boundaries)
        placed, stored = (ctypes.c_int32 * (3 * count))(), (ctypes.c_int32 * count)()
        total = ctypes.c_double()
        num_placed = core().memonger_chain_solve(
            ctypes.c_int64(pool_bytes), _LEVELS, count, *self._flat, placed, stored,
            ctypes.byref(total))
        if num_placed < 0:
            raise SolverError("the planner ran out of memory")
        if not num_placed:
            return None
        starts = {-1: 0, **dict(enumerate(self._backward))}
        rows_placed = [placed[3 * i:3 * i + 3] for i in range(num_placed)]
        return ChainPlan(total.value, sorted(
            (Placed(self.segments[s], self.tradeoffs[s], self.tradeoffs[s].all[t], starts[before])
             for s, t, before in rows_placed), key=lambda part: part.segment.begin),
            {number: starts[before] for number, before in enumerate(stored) if before != -2})


def decisions_of(graph: Graph, native: NativeSearch, plan: ChainPlan) -> Decisions:
    """A chain's plan in the terms of the native search of the whole graph.

    O(gaps) time.
    """
    first_backward = graph.first_backward
    place_of = {op: number for number, part in enumerate(plan.placed)
                for op in part.segment.ops if op >= 0}
    stored = {number: plan.stored.get(part.segment.begin)
              for number, part in enumerate(plan.placed)}
    own: Dict[Tuple[int, int, int], int] = {}
    crossing: Dict[Tuple[int, int], int] = {}
    used: Set[int] = set()
    again: Dict[int, int] = {}
    for part in plan.placed:
        segment = part.segment
        used.update(segment.variants[index]
                    for index, on in zip(part.tradeoffs.search.allowed_variants,
                                         part.tradeoff.variants) if on)
        again.update((segment.ops[op], segment.ops[reader])
                     for op, reader in part.tradeoffs.run_again_before(part.tradeoff).items())
        for (op, _, begin, end, trailing), choice in zip(part.tradeoffs.search.gaps(),
                                                         part.tradeoff.choices):
            stop = -1 if trailing else segment.ops[end]
            own[segment.ops[op], segment.ops[begin], stop] = choice
            if begin <= segment.middle < end and not trailing:
                crossing[segment.ops[op], stop] = choice if begin < segment.middle else _KEEP
    choices: List[int] = []
    advance: List[int] = []

    def decide(choice: int, from_op: int = -1) -> None:
        choices.append(choice)
        advance.append(from_op)

    def held_from(begin: int, op: Optional[int]) -> None:
        """Keep a value from an op on; None: never."""
        if op is None:
            decide(_TRANSIENT)
        elif op <= begin:
            decide(_KEEP)
        else:
            decide(_TRANSIENT, op)

    for op, _, begin, end, trailing in native.gaps():
        part_of_op = place_of.get(op)
        if part_of_op is None or (not trailing and end < first_backward):
            decide(_TRANSIENT if trailing else _KEEP)
            continue
        part = plan.placed[part_of_op]
        begins_in = place_of.get(begin, part_of_op)
        if trailing:
            if begins_in == part_of_op:
                choice = own.get((op, begin, -1), _TRANSIENT)
                # Something later in the segment starts from it.
                if begin < first_backward and choice != _TRANSIENT:
                    held_from(begin, part.made_at if choice == _KEEP else again.get(op))
                else:
                    decide(choice)
            elif begin >= first_backward:
                decide(_KEEP)
            else:
                held_from(begin, stored[begins_in])
            continue
        if place_of.get(end, part_of_op) != part_of_op:
            held_from(begin, stored[place_of[end]])
        elif begin >= first_backward and begins_in == part_of_op:
            decide(own.get((op, begin, end), _KEEP))
        else:
            choice = own.get((op, begin, end), crossing.get((op, end), _KEEP))
            if begin >= first_backward:
                decide(_KEEP)  # another segment read it before, as its input
            elif choice == _TRANSIENT:
                decide(_TRANSIENT)
            else:
                held_from(begin, part.made_at if choice == _KEEP else again.get(op))
    return Decisions(tuple(choices), tuple(advance),
                     tuple(index in used for index in native.allowed_variants))
