"""Repeated blocks of a network: the 36 units of a stage, the 200 steps of an LSTM.

Ops are compared by kind and by how they are wired, not by size or name. Candidates come from the
sequence of kinds alone (for each period, how far the sequence agrees with itself shifted by the
period); the one that saves most is taken first, then those that do not overlap it. At most
O(n p) for n ops and periods up to p.
"""
from __future__ import annotations

import heapq
import os
import re
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

import numpy

from ...graph.types import Graph

MIN_PERIOD = 4
MAX_PERIOD = 300
#: A repeat that hides fewer ops than this is not worth a frame.
MIN_HIDDEN = 8
#: Longer blocks are only taken three times or more.
LONG = 24


@dataclass(frozen=True)
class Repeat:
    """``count`` blocks of ``period`` forward ops each, from position ``first`` on."""

    first: int
    period: int
    count: int

    @property
    def end(self) -> int:
        return self.first + self.period * self.count


def find_repeats(graph: Graph, ops: Sequence[int]) -> List[Repeat]:
    """The repeated blocks among forward ops, in order, without overlap.

    ``ops``: ids of the forward ops in execution order; positions refer to it.
    """
    if len(ops) < 2 * MIN_PERIOD:
        return []
    kinds: Dict[str, int] = {}
    blocks = _Blocks(
        numpy.array([kinds.setdefault(graph.ops[op].kind, len(kinds)) for op in ops]),
        _wires(graph, ops), [graph.ops[op].name for op in ops],
        [re.sub(r"\d+", "#", graph.ops[op].name) for op in ops],
        numpy.zeros(len(ops), dtype=bool))
    repeats: List[Repeat] = []
    queue = _candidates(blocks.kinds)
    while queue:
        score, period, first = heapq.heappop(queue)
        best = None if blocks.taken[first] else blocks.best_rotation(first, period)
        if best is None:
            continue
        # The estimate knows kinds only; where the wiring says less, others may come first.
        if queue and _score(best.period, best.count) > queue[0][0] \
                and _score(best.period, best.count) > score:
            heapq.heappush(queue, (_score(best.period, best.count), best.period, best.first))
            continue
        blocks.taken[best.first:best.end] = True
        repeats.append(best)
    return sorted(repeats, key=lambda repeat: repeat.first)


def _score(period: int, count: int) -> float:
    """Less is better: ops that are not drawn, less where few blocks are long."""
    return -period * (count - 1) ** 2 / count


def _candidates(kinds: numpy.ndarray) -> List[Tuple[float, int, int]]:
    """A heap of (score, period, start) by kinds alone."""
    scored: List[Tuple[float, int, int]] = []
    for period in range(MIN_PERIOD, min(MAX_PERIOD, len(kinds) // 2) + 1):
        more = _run_lengths(kinds[:-period] == kinds[period:]) // period
        for first in numpy.nonzero(more >= (1 if period <= LONG else 2))[0]:
            # Inside a longer run the same block starts again and again: its first start will do.
            if first == 0 or more[first - 1] < more[first] or first % period == 0:
                scored.append((_score(period, int(more[first]) + 1), period, int(first)))
    heapq.heapify(scored)
    return scored


def _run_lengths(agrees: numpy.ndarray) -> numpy.ndarray:
    """(places,) int64: how many trues of ``agrees``, (places,) bool, follow from each on."""
    positions = numpy.arange(len(agrees))
    stops = numpy.where(agrees, len(agrees), positions)
    return numpy.minimum.accumulate(stops[::-1])[::-1] - positions


def _wires(graph: Graph, ops: Sequence[int]) -> List[Tuple[int, ...]]:
    """For each position the positions that its inputs come from; -1 from outside."""
    index_of = {op: position for position, op in enumerate(ops)}
    return [tuple(index_of.get(graph.tensors[t].producer, -1) for t in graph.ops[op].inputs)
            for op in ops]


@dataclass
class _Blocks:
    """The ops by position, and which are part of a repeat already."""

    #: (ops,) int64: a number for each kind of op.
    kinds: numpy.ndarray
    wires: List[Tuple[int, ...]]
    names: List[str]
    #: Names without their numbers.
    skeletons: List[str]
    #: (ops,) bool.
    taken: numpy.ndarray

    def best_rotation(self, first: int, period: int) -> Optional[Repeat]:
        """The repeat at ``first``, or up to a period later where names agree or less enters."""
        best, best_key = None, (0, 0, 0, 0, 0)
        for start in range(first, min(first + period, len(self.kinds) - 2 * period + 1)):
            count = self.count(start, period)
            if (count - 1) * period < MIN_HIDDEN or (count < 3 and period > LONG):
                continue
            shared = self.shared(start, period)
            if count == 2 and self.shared(start + period, period) < shared:
                continue  # the second block reaches into another part of the network
            values, reads = self.entering(start, period)
            key = (count, self.alike(start, period, count), -values, shared, reads)
            # One block fewer is a fair price for a boundary that the names agree with, or that only
            # one value crosses.
            clearer = (key[1], shared) > (best_key[1], best_key[3]) or values == 1 < -best_key[2]
            if best is None or key > best_key or (
                    count == best_key[0] - 1 and key[1] >= best_key[1] and clearer):
                best, best_key = Repeat(start, period, count), key
        return best

    def shared(self, start: int, period: int) -> int:
        """Length of the prefix that the names of a block share."""
        return len(os.path.commonprefix(self.names[start:start + period]))

    def entering(self, start: int, period: int) -> Tuple[int, int]:
        """How many values enter the second block, and how often it reads them.

        A unit begins where one value enters that is read twice, by the body and around it.
        """
        begin = start + period
        reads = [source for q in range(period) for source in self.wires[begin + q]
                 if 0 <= source < begin]
        return len(set(reads)), len(reads)

    def alike(self, start: int, period: int, count: int) -> int:
        """How many places of the block have the same name in all blocks, but for numbers."""
        return sum(len({self.skeletons[start + q + r * period] for r in range(count)}) == 1
                   for q in range(period))

    def count(self, first: int, period: int) -> int:
        """How many blocks from ``first`` on have the same kinds and wiring."""
        count = 0
        pattern: List[Tuple[int, ...]] = []
        while first + (count + 1) * period <= len(self.kinds):
            start = first + count * period
            if self.taken[start:start + period].any() or not numpy.array_equal(
                    self.kinds[start:start + period], self.kinds[first:first + period]):
                break
            relative = [_relative(self.wires[start + q], start, period) for q in range(period)]
            if count == 1:
                if not all(_inner(a) == _inner(b) for a, b in zip(pattern, relative)):
                    break
                pattern = relative
            elif count == 0:
                pattern = relative
            elif relative != pattern:
                break
            count += 1
        return count


_FAR, _OUTSIDE = -10**9, -10**9 - 1


def _relative(wire: Tuple[int, ...], start: int, period: int) -> Tuple[int, ...]:
    """Sources relative to the block: 0.. inside it, negative in the block before it."""
    return tuple(_OUTSIDE if source < 0 else source - start if source >= start - period else _FAR
                 for source in wire)


def _inner(relative: Tuple[int, ...]) -> Tuple[int, ...]:
    # The first block's values from before may come from anywhere.
    return tuple(source if source >= 0 else -1 for source in relative)


def name_pattern(names: Sequence[str]) -> str:
    """What names have in common: ``stage3_unit*_bn1``."""
    if len(set(names)) == 1:
        return names[0]
    parts = [re.split(r"(\d+|_)", name) for name in names]
    if len({len(part) for part in parts}) > 1:
        return os.path.commonprefix(list(names)) + "*"
    merged = "".join("*" if len(set(column)) > 1 else column[0] for column in zip(*parts))
    return re.sub(r"\*+", "*", merged)
