"""Blocks at offsets of one buffer: little more memory than what is alive at the worst step.

A whole buffer serves one block at a time, from its first byte; in an arena blocks lie side by side
at any offset. Finding the smallest arena is NP-hard (Garey and Johnson 1979, SR2); one block after
the other at the lowest free offset, in a good order, comes within a few percent of the peak of live
bytes on training steps, whose lives nest (Sekiyama et al. 2018, "Profile-guided memory optimization
for deep neural networks"). A bounded search over the order removes most of what is left.

Readable reference of ``plugins/core/arena.cc``: same offsets, byte for byte.
"""
from __future__ import annotations

from bisect import insort
from typing import List, Optional, Sequence, Tuple

from .blocks import Block, Blocks, StorageModel
from .graph import Graph
from .packing import Assignment, Random, best, groups, lower_bound, round_up

#: Offsets are multiples of this: a cache line, and what MKL-DNN likes.
ALIGNMENT = 64


def fits(graph: Graph) -> bool:
    """Whether an executor of the graph can have an arena: it is one, and has one device."""
    return graph.pools == "executor" and len({op.device for op in graph.ops}) <= 1


def outlives(block: Block, blocks: Blocks) -> bool:
    """Whether a block needs a buffer of its own: outputs of the network, and marked ones."""
    return block.apart or block.end >= blocks.num_steps


def smallest(blocks: Blocks, model: StorageModel, rounding: int) -> Assignment:
    """The arena, or :func:`memonger.packing.best` where that is no larger."""
    found = arena(blocks, model, rounding)
    if found.pool_bytes < lower_bound(blocks, rounding):
        return found
    whole = best(blocks, model, rounding)
    return whole if whole.pool_bytes <= found.pool_bytes else found


def arena(blocks: Blocks, model: StorageModel, rounding: int) -> Assignment:
    """One buffer for each device and pool; what outlives the step apart. O(tries * n^2)."""
    buffer_of = [-1] * len(blocks.blocks)
    offset_of = [0] * len(blocks.blocks)
    sizes: List[int] = []
    for group in groups(blocks):
        inside = [i for i in group if not outlives(blocks.blocks[i], blocks)]
        if inside:
            placer = _Placer([blocks.blocks[i] for i in inside])
            size, offsets = placer.search(model.effort)
            for i, offset in zip(inside, offsets):
                buffer_of[i], offset_of[i] = len(sizes), offset
            sizes.append(size)
        for i in group:
            if buffer_of[i] < 0:
                buffer_of[i] = len(sizes)
                sizes.append(round_up(blocks.blocks[i].bytes, rounding))
    return Assignment(tuple(buffer_of), tuple(sizes), sum(sizes), tuple(offset_of))


class _Placer:
    """Blocks of one arena, placed again and again in different orders."""

    def __init__(self, blocks: Sequence[Block]):
        self.start = [block.start for block in blocks]
        self.end = [block.end for block in blocks]
        self.bytes = [round_up(block.bytes, ALIGNMENT) for block in blocks]

    def bound(self) -> int:
        """The largest sum of living blocks: no arena is smaller."""
        change = [0] * (max(self.end) + 2)
        for start, end, size in zip(self.start, self.end, self.bytes):
            change[start] += size
            change[end + 1] -= size
        live = most = 0
        for step in change:
            live += step
            most = max(most, live)
        return most

    def search(self, effort: int) -> Tuple[int, List[int]]:
        """Greedy orders, then changes of the best, until within a thousandth of the bound."""
        n, bound = len(self.bytes), self.bound()
        enough = bound + bound // 1024
        length = [end - start + 1 for start, end in zip(self.start, self.end)]
        keys = (lambda i: (-length[i], -self.bytes[i]), lambda i: (-self.bytes[i], -length[i]),
                lambda i: -self.bytes[i] * length[i], lambda i: (self.start[i], -self.bytes[i]))
        least: Optional[int] = None
        order: List[int] = []
        offsets: List[int] = []
        for key in keys:
            if least is not None and least <= enough:
                break
            candidate = sorted(range(n), key=key)
            reached, placed = self.place(candidate, least)
            if least is None or reached < least:
                least, order, offsets = reached, candidate, placed
        assert least is not None
        tries = 0 if n < 3 else min(10 * effort, 1200000000 // (n * n))
        random, current, now = Random(), least, offsets
        while tries > 0 and least > enough:
            tries -= 1
            # Something that lives with the highest block in memory, or that block, comes earlier.
            highest = next(i for i in range(n) if now[i] + self.bytes[i] == current)
            pile = [i for i in range(n) if self.start[i] <= self.end[highest]
                    and self.end[i] >= self.start[highest]]
            moved = pile[random.below(len(pile))]
            at = order.index(moved)
            to = random.below(at + 1)
            trial = order[:to] + [moved] + order[to:at] + order[at + 1:]
            reached, placed = self.place(trial, current)
            if reached <= current:
                current, order, now = reached, trial, placed
                if reached < least:
                    least, offsets = reached, placed
        return least, offsets

    def place(self, order: Sequence[int], limit: Optional[int]) -> Tuple[int, List[int]]:
        """Each block at the lowest offset where nothing alive at the same time lies.

        Gives up beyond ``limit``.
        """
        offsets = [0] * len(order)
        placed: List[Tuple[int, int, int]] = []  # (offset, number of the placement, block)
        top = 0
        for number, i in enumerate(order):
            offset = 0
            for low, _, other in placed:
                if self.start[other] > self.end[i] or self.end[other] < self.start[i]:
                    continue
                if low - offset >= self.bytes[i]:
                    break
                offset = max(offset, low + self.bytes[other])
            top = max(top, offset + self.bytes[i])
            if limit is not None and top > limit:
                return top, offsets
            offsets[i] = offset
            insort(placed, (offset, number, i))
        return top, offsets


def overlap(first: Tuple[int, int], second: Tuple[int, int]) -> bool:
    """Whether two half-open ranges of bytes share a byte."""
    return first[0] < second[1] and second[0] < first[1]
