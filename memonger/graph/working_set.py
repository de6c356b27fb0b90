"""What an op needs in memory while it runs."""
from __future__ import annotations

from .types import Graph, Op


def working_bytes(graph: Graph, op: Op) -> int:
    """Bytes of the pool that the op reads or writes."""
    read = {t for i, t in enumerate(op.inputs) if i not in op.ignored_inputs}
    return sum(graph.tensors[t].size_bytes for t in read | set(op.outputs)
               if graph.tensors[t].pooled)
