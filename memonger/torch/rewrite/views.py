"""Views in a graph that eager kernels run: each is a call, which takes as long as a small kernel.

Autograd transposes a weight again that forward had transposed, and the like. A view that shows its
memory as an older value does is that value; what a step allocates stays the same.
"""
from __future__ import annotations

from typing import Dict, Hashable, List

import torch
import torch.fx as fx

from ..pytorch import private_ops


def fold_views(module: fx.GraphModule) -> None:
    """Leave out views that show what is there. Linear in the graph, as chains of views are short.

    What a graph gives is no input, and no two results are one tensor, where they were not.
    """
    graph = module.graph
    results = graph.output_node().all_input_nodes
    #: What each view is made from, itself last.
    chains: Dict[fx.Node, List[fx.Node]] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if not private_ops.makes_view(node.target) or not isinstance(value, torch.Tensor):
            continue
        chain = chains.get(node.args[0], [node.args[0]])
        chains[node] = [*chain, node]
        shown = _shown(value)
        same = next((older for older in chain if _shown(older.meta["val"]) == shown), None)
        if same is None:
            continue
        if node in results and same.op == "call_function" and same not in results:
            results.append(same)
            node.replace_all_uses_with(same)
        node.replace_all_uses_with(same, lambda user: user.op != "output")
    for node in reversed(list(chains)):
        if not node.users:
            graph.erase_node(node)


def _shown(value: torch.Tensor) -> Hashable:
    """How a tensor shows its memory."""
    return (value.dtype, value.is_conj(), value.is_neg(), str(value.storage_offset()),
            *map(str, (*value.shape, *value.stride())))
