"""Blocks at offsets of one buffer: little more memory than what is alive at the worst step.

A whole buffer serves one block at a time, from its first byte; in an arena blocks lie side by side
at any offset. Finding the smallest arena is NP-hard (Garey and Johnson 1979, SR2);
:mod:`memonger.skyline` comes within a thousandth of the peak of live bytes on nearly all steps.

Readable reference of ``plugins/core/arena.cc``: same offsets, byte for byte.
"""
from __future__ import annotations

from typing import List, Tuple

from .blocks import Block, Blocks, StorageModel
from .graph import Graph
from .packing import Assignment, best, groups, lower_bound, round_up
from .skyline import Rectangle, bound, search

#: Offsets are multiples of this: a cache line, and what MKL-DNN likes.
ALIGNMENT = 64
#: More than this much work, tries times the square of the blocks, takes seconds.
_MOST_WORK = 1200000000


def fits(graph: Graph) -> bool:
    """Whether an executor of the graph can have an arena: it is one, and has one device."""
    return graph.pools == "executor" and len({op.device for op in graph.ops}) <= 1


def outlives(block: Block, blocks: Blocks) -> bool:
    """Whether a block needs a buffer of its own: outputs of the network, and marked ones."""
    return block.apart or block.end >= blocks.num_steps


def smallest(blocks: Blocks, model: StorageModel, rounding: int) -> Assignment:
    """The arena, or :func:`memonger.packing.best` where that is no larger."""
    found = arena(blocks, model, rounding)
    if not found.pool_bytes or found.pool_bytes < lower_bound(blocks, rounding):
        return found  # nothing is smaller
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
            lives = [Rectangle(block.start, block.end, round_up(block.bytes, ALIGNMENT))
                     for block in (blocks.blocks[i] for i in inside)]
            least = bound(lives)
            size, offsets = search(lives, least + least // 1024,
                                   min(10 * model.effort, _MOST_WORK // len(lives) ** 2))
            for i, offset in zip(inside, offsets):
                buffer_of[i], offset_of[i] = len(sizes), offset
            sizes.append(size)
        for i in group:
            if buffer_of[i] < 0:
                buffer_of[i] = len(sizes)
                sizes.append(round_up(blocks.blocks[i].bytes, rounding))
    return Assignment(tuple(buffer_of), tuple(sizes), sum(sizes), tuple(offset_of))


def overlap(first: Tuple[int, int], second: Tuple[int, int]) -> bool:
    """Whether two half-open ranges of bytes share a byte."""
    return first[0] < second[1] and second[0] < first[1]
