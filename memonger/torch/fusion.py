"""Which values Inductor never puts into memory.

Inductor makes one kernel of fusible ops that read each other: pointwise ones and reductions. A
value stays in registers where all who read it are part of its kernel. Taken for one kernel here:
fusible ops of one half of the step with as many matrix products, convolutions and other kernels of
libraries before them, counted along the longest path, as there is then none between them.
"""
from __future__ import annotations

from typing import Dict, List, Sequence, Set

import torch
import torch.fx as fx

from . import private


def in_registers(nodes: Sequence[fx.Node], views: Set[fx.Node],
                 late: Set[fx.Node]) -> Set[fx.Node]:
    """The nodes of a joint graph, in order, whose values no kernel writes.

    ``views``: the nodes that only rename memory. ``late``: the nodes of backward.
    Linear in the number of edges.
    """
    fusible = {n for n in nodes if n.op == "call_function" and n not in views
               and private.is_fusible(n) and isinstance(n.meta.get("val"), torch.Tensor)}
    stage: Dict[fx.Node, int] = {}
    for node in nodes:
        library = node.op == "call_function" and node not in fusible and node not in views
        stage[node] = max((stage[i] for i in node.all_input_nodes), default=0) + library
    readers: Dict[fx.Node, List[fx.Node]] = {}
    for node in reversed(nodes):
        found: List[fx.Node] = []
        for user in node.users:
            found += readers[user] if user.op == "call_function" and user in views else [user]
        readers[node] = found
    return {n for n in fusible if readers[n] and all(
        r in fusible and stage[r] == stage[n] and (r in late) == (n in late)
        for r in readers[n])}
