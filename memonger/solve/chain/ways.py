"""The ways in which segments of a chain can trade time for bytes, found by the native library.

``plugins/core/tradeoffs.h`` tells how. Segments of repeated blocks are searched once.
"""
from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import Dict, List, Sequence, Set, Tuple

from ...util.errors import SolverError
from ..options import Options
from ..search.native import Decisions, NativeSearch
from .segments import Segment


@dataclass(frozen=True)
class Way:
    """One way to decide the values of a segment."""

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
class Ways:
    """What is known of a segment's shape."""

    search: NativeSearch
    ways: Sequence[Way]

    def run_again_before(self, way: Way) -> Dict[int, int]:
        """For each op that runs again in a way: the op right before which it does so first."""
        found = self.search.evaluate(Decisions(way.choices, (-1,) * len(way.choices), way.variants))
        first: Dict[int, int] = {}
        seen: Set[int] = set()
        waiting: List[int] = []
        for step in found.schedule.steps if found else ():
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
        return min((way.forward_peak_bytes for way in self.ways), default=0)


class _SegmentSearch(NativeSearch):
    def ways(self, middle: int, work: int, seed: int) -> List[Way]:
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
        return [Way(extra[i], sizes[4 * i], sizes[4 * i + 1], sizes[4 * i + 2],
                    bool(sizes[4 * i + 3]), tuple(choices[gaps * i:gaps * (i + 1)]),
                    tuple(bool(on) for on in chosen[variants * i:variants * (i + 1)]))
                for i in range(count)]


def find_ways(segments: Sequence[Segment], options: Options, work: int
              ) -> Dict[Tuple[int, int], Ways]:
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
    known: Dict[object, Ways] = {}
    for key, segment in shapes.items():
        number_of = {op: number for number, op in enumerate(segment.ops) if op >= 0}
        keep, recompute = (tuple(number_of[op] for op in pins if op in number_of)
                           for pins in (options.keep, options.recompute))
        search = _SegmentSearch(segment.graph, replace(options, storage="live", keep=keep,
                                                       recompute=recompute))
        share = int(work * len(segment.ops) ** 2 / total)
        known[key] = Ways(search, search.ways(segment.middle, share, options.seed))
    return {place: known[key] for place, key in key_of.items()}
