"""How segments of a chain can trade time for bytes, as the native library finds it.

The search is that of ``plugins/core/tradeoffs.h``. Segments of repeated blocks are searched once,
and for another budget not again.
"""
from __future__ import annotations

import ctypes
import functools
import threading
from dataclasses import dataclass, field
from typing import Dict, FrozenSet, List, Optional, Sequence, Set, Tuple

from ...graph.types import Graph
from ...util.errors import SolverError
from ..options import Options
from ..search.decisions import Decisions
from ..search.native import NativeSearch
from .segments import Segment

#: Trade-offs of so many segments are kept: those of a few networks.
_SEARCHES_KEPT = 256


@dataclass(frozen=True)
class Tradeoff:
    """Decisions on the values of a segment, and what they take."""

    #: Time beyond one forward and backward run without a plan.
    extra_s: float
    #: What stays from forward to backward besides what the rest of the network reads.
    kept_bytes: int
    #: The most bytes while its forward and its backward ops run, without its inputs.
    forward_peak_bytes: int
    backward_peak_bytes: int
    #: Backward makes everything again from what the segment reads from outside.
    nothing_kept: bool
    #: Of each gap and each variant of the segment's own search, as in ``Decisions``.
    choices: Tuple[int, ...]
    variants: Tuple[bool, ...]


@dataclass(frozen=True)
class Tradeoffs:
    """Those of a shape of segment."""

    search: NativeSearch
    all: Sequence[Tradeoff]

    def run_again_before(self, tradeoff: Tradeoff) -> Dict[int, int]:
        """For each op that runs again: the op right before which it does so first."""
        decided = self.search.evaluate(Decisions(
            tradeoff.choices, (-1,) * len(tradeoff.choices), tradeoff.variants))
        first: Dict[int, int] = {}
        seen: Set[int] = set()
        waiting: List[int] = []
        for step in decided.schedule.steps if decided else ():
            if step.op in seen:
                waiting.append(step.op)
                continue
            seen.add(step.op)
            for op in waiting:
                first.setdefault(op, step.op)
            waiting.clear()
        return first

    @property
    def transient_peak_bytes(self) -> int:
        """The least bytes that forward needs at its worst op."""
        return min((tradeoff.forward_peak_bytes for tradeoff in self.all), default=0)


class _SegmentSearch(NativeSearch):
    def tradeoffs(self, middle: int, work: int, seed: int) -> List[Tradeoff]:
        count = self._library.memonger_search_tradeoffs(
            self._handle, middle, work, seed)
        if count < 0:
            raise SolverError("the planner ran out of memory")
        gaps, variants = len(self.gaps()), len(self.allowed_variants)
        extra = (ctypes.c_double * max(1, count))()
        sizes = (ctypes.c_int64 * max(1, 4 * count))()
        choices = (ctypes.c_int8 * max(1, gaps * count))()
        chosen = (ctypes.c_int8 * max(1, variants * count))()
        self._library.memonger_search_tradeoffs_found(self._handle, extra, sizes, choices, chosen)
        return [Tradeoff(extra[i], sizes[4 * i], sizes[4 * i + 1], sizes[4 * i + 2],
                         bool(sizes[4 * i + 3]), tuple(choices[gaps * i:gaps * (i + 1)]),
                         tuple(bool(on) for on in chosen[variants * i:variants * (i + 1)]))
                for i in range(count)]


def find_tradeoffs(segments: Sequence[Segment], options: Options, work: int
                   ) -> Dict[Tuple[int, int], Tradeoffs]:
    """Search each shape of segment once.

    Parameters
    ----------
    segments : sequence of Segment
    options : Options
        ``keep``, ``recompute``, ``variants`` and ``seed`` are read.
    work : int
        Steps to simulate for all shapes together.

    Returns
    -------
    dict
        By (begin, end) of the segment.
    """
    asked = {(segment.begin, segment.end): _Problem.of(segment, options) for segment in segments}
    total = sum(len(problem.graph.ops) ** 2 for problem in set(asked.values()))
    thread = threading.get_ident()
    return {ends: _searched(problem, int(work * len(problem.graph.ops) ** 2 / total), options.seed,
                            thread) for ends, problem in asked.items()}


@dataclass(frozen=True)
class _Problem:
    """What decides the trade-offs of a segment."""

    shape: Tuple[object, ...]
    middle: int
    keep: Tuple[int, ...]
    recompute: Tuple[int, ...]
    variants: str
    max_clones: int
    without: FrozenSet[str]
    host_budget_bytes: Optional[int]
    graph: Graph = field(compare=False)

    @classmethod
    def of(cls, segment: Segment, options: Options) -> "_Problem":
        number_of = {op: number for number, op in enumerate(segment.ops) if op >= 0}
        keep, recompute = (tuple(number_of[op] for op in pins if op in number_of)
                           for pins in (options.keep, options.recompute))
        return cls(segment.shape, segment.middle, keep, recompute, options.variants,
                   options.max_clones, options.without, options.host_budget_bytes, segment.graph)


@functools.lru_cache(maxsize=_SEARCHES_KEPT)
def _searched(problem: _Problem, work: int, seed: int, thread: int) -> Tradeoffs:
    """The trade-offs, found once in each thread: a native search serves one."""
    search = _SegmentSearch(problem.graph, Options(
        storage="live", keep=problem.keep, recompute=problem.recompute, variants=problem.variants,
        max_clones=problem.max_clones, without=problem.without,
        host_budget_bytes=problem.host_budget_bytes))
    return Tradeoffs(search, search.tradeoffs(problem.middle, work, seed))
