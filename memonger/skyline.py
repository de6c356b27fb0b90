"""Blocks at offsets of one buffer: the "skyline" placement.

A block is a rectangle: its life on the axis of steps, its bytes upwards. The skyline is the top of
what has been placed, cut into segments of one height. Again and again the lowest segment gets a
block whose whole life lies in it, the first such block of a given order; where there is none the
segment is lifted to its lower neighbour (best fit: Burke, Kendall and Whitwell 2004, "A new
placement heuristic for the orthogonal stock-cutting problem", Operations Research 52; for memory:
Sekiyama et al. 2018, "Profile-guided memory optimization for deep neural networks"). What is lost
to lifting is all that is lost, so good orders come within a thousandth of the peak of live bytes.

Readable reference of ``plugins/core/skyline.cc``: same offsets, byte for byte.
"""
from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Tuple

from .packing import Random


class Rectangle(NamedTuple):
    """A block: inclusive steps, and bytes."""

    start: int
    end: int
    bytes: int


class _Segment:
    """Steps over which the skyline has one height."""

    def __init__(self, start: int, end: int, height: int):
        self.start, self.end, self.height = start, end, height


def bound(rectangles: Sequence[Rectangle]) -> int:
    """The largest sum of living blocks: nothing is smaller."""
    change = [0] * (max((r.end for r in rectangles), default=0) + 2)
    for start, end, size in rectangles:
        change[start] += size
        change[end + 1] -= size
    live = most = 0
    for step in change:
        live += step
        most = max(most, live)
    return most


def search(rectangles: Sequence[Rectangle], enough: int, tries: int) -> Tuple[int, List[int]]:
    """Four orders, then changes of the best one, until no more than ``enough`` bytes are taken.

    Parameters
    ----------
    rectangles : sequence of Rectangle
        At least one.
    enough : int
        Bytes at which the search ends.
    tries : int
        How many changes to try at most.

    Returns
    -------
    int
        Bytes taken.
    list of int
        Offset of each block.
    """
    keys = (lambda r: (-(r.end - r.start + 1), -r.bytes),
            lambda r: (-r.bytes * (r.end - r.start + 1), 0),
            lambda r: (-r.bytes, -(r.end - r.start + 1)),
            lambda r: (r.start, -r.bytes))
    least: Optional[int] = None
    best: List[int] = []
    offsets: List[int] = []
    for key in keys:
        if least is not None and least <= enough:
            break
        order = sorted(range(len(rectangles)), key=lambda i: key(rectangles[i]))
        reached, placed = place(rectangles, order, least)
        if least is None or reached < least:
            least, best, offsets = reached, order, placed
    assert least is not None
    random = Random()
    for _ in range(tries if len(rectangles) >= 3 else 0):
        if least <= enough:
            break
        order = list(best)
        one, other = random.below(len(order)), random.below(len(order))
        order[one], order[other] = order[other], order[one]
        reached, placed = place(rectangles, order, least)
        if reached <= least:
            best = order
            if reached < least:
                least, offsets = reached, placed
    return least, offsets


def place(rectangles: Sequence[Rectangle], order: Sequence[int],
          limit: Optional[int]) -> Tuple[int, List[int]]:
    """Each block of ``order`` in turn where the skyline is lowest. O(n^2).

    Gives up beyond ``limit``.
    """
    offsets = [0] * len(rectangles)
    skyline = [_Segment(0, max(r.end for r in rectangles), 0)]
    left = list(order)
    top = 0
    while left:
        lowest = min(skyline, key=lambda segment: (segment.height, segment.start))
        block = next((i for i in left if lowest.start <= rectangles[i].start
                      and rectangles[i].end <= lowest.end), None)
        at = skyline.index(lowest)
        if block is None:
            beside = [s.height for s in (*skyline[max(at - 1, 0):at], *skyline[at + 1:at + 2])]
            lowest.height = min(beside)
        else:
            start, end, size = rectangles[block]
            offsets[block] = lowest.height
            top = max(top, lowest.height + size)
            if limit is not None and top > limit:
                return top, offsets
            left.remove(block)
            skyline[at:at + 1] = [
                segment for segment in (_Segment(lowest.start, start - 1, lowest.height),
                                        _Segment(start, end, lowest.height + size),
                                        _Segment(end + 1, lowest.end, lowest.height))
                if segment.start <= segment.end]
        _join(skyline)
    return top, offsets


def _join(skyline: List[_Segment]) -> None:
    """Neighbours of one height are one segment."""
    at = 0
    while at + 1 < len(skyline):
        if skyline[at].height == skyline[at + 1].height:
            skyline[at].end = skyline.pop(at + 1).end
        else:
            at += 1
