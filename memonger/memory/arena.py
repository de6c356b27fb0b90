"""Arenas: blocks at offsets of one buffer. ``plugins/core/memory/arena.cc`` finds the offsets."""
from __future__ import annotations

from ..graph.types import Graph
from .liveness import Block, Blocks


def fits(graph: Graph) -> bool:
    """Whether an executor of the graph can have an arena: it is one, and has one device."""
    return graph.pools == "executor" and len({op.device for op in graph.ops}) <= 1


def outlives(block: Block, blocks: Blocks) -> bool:
    """Whether a block needs a buffer of its own: outputs of the network, and marked ones."""
    return block.own_buffer or block.end >= blocks.num_steps
