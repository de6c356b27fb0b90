"""Arenas: blocks at offsets of one buffer. ``plugins/core/memory/arena.cc`` finds the offsets."""
from __future__ import annotations

from typing import Tuple

from ..graph.types import Graph
from .liveness import Block, Blocks

#: Offsets are multiples of this: a cache line, and what MKL-DNN likes.
ALIGNMENT = 64


def fits(graph: Graph) -> bool:
    """Whether an executor of the graph can have an arena: it is one, and has one device."""
    return graph.pools == "executor" and len({op.device for op in graph.ops}) <= 1


def outlives(block: Block, blocks: Blocks) -> bool:
    """Whether a block needs a buffer of its own: outputs of the network, and marked ones."""
    return block.own_buffer or block.end >= blocks.num_steps


def overlap(first: Tuple[int, int], second: Tuple[int, int]) -> bool:
    """Whether two half-open ranges of bytes share a byte."""
    return first[0] < second[1] and second[0] < first[1]


def round_up(size_bytes: int, unit: int) -> int:
    """The smallest multiple of a unit that is at least this number of bytes."""
    return -(-size_bytes // unit) * unit
