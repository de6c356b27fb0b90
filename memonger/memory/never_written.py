"""Buffers that MXNet allocates and that nobody writes: on a CPU no page of them is resident."""
from __future__ import annotations

from ..graph.types import Graph
from .storage import StoragePlan


def never_written_bytes(graph: Graph, plan: StoragePlan) -> int:
    """Bytes of the buffers that no op writes without MKLDNN.

    Max pooling has a second output, its workspace for MKLDNN, which its native code leaves alone.

    Parameters
    ----------
    graph : Graph
    plan : StoragePlan
        Of that graph, in whole buffers.
    """
    written = set()
    for value, block in zip(plan.program.values, plan.blocks.block_of):
        op = graph.ops[plan.program.steps[value.step].op]
        if block >= 0 and not (op.kind == "Pooling" and value.position == 1):
            written.add(plan.buffer_of[block])
    return sum(size for buffer, size in enumerate(plan.buffer_bytes) if buffer not in written)
