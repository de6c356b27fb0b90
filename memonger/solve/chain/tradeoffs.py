"""How segments of a chain can trade time for bytes, as the native library finds it.

The search is that of ``plugins/core/tradeoffs.h``. Segments of repeated blocks are searched once.
"""
from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import Dict, List, Sequence, Set, Tuple

from ...util.errors import SolverError
from ..options import Options
from ..search.decisions import Decisions
from ..search.native import NativeSearch
from .segments import Segment


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
    shapes: Dict[object, Segment] = {}
    key_of = {}
    pinned = set(options.keep) | set(options.recompute)
    for segment in segments:
        pins = tuple((number, op in options.keep) for number, op in enumerate(segment.ops)
                     if op in pinned)
        key_of[segment.begin, segment.end] = (segment.shape, pins)
        shapes.setdefault((segment.shape, pins), segment)
    total = sum(len(segment.ops) ** 2 for segment in shapes.values())
    known: Dict[object, Tradeoffs] = {}
    for key, segment in shapes.items():
        number_of = {op: number for number, op in enumerate(segment.ops) if op >= 0}
        keep, recompute = (tuple(number_of[op] for op in pins if op in number_of)
                           for pins in (options.keep, options.recompute))
        search = _SegmentSearch(segment.graph, replace(options, storage="live", keep=keep,
                                                       recompute=recompute))
        share = int(work * len(segment.ops) ** 2 / total)
        known[key] = Tradeoffs(search, search.tradeoffs(segment.middle, share, options.seed))
    return {ends: known[key] for ends, key in key_of.items()}
