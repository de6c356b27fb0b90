"""What has bytes in a joint graph: storages, not nodes.

Views share a storage, and an operator's outputs may. A run of the graph on fake tensors tells the
storage of each value.
"""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import torch
import torch.fx as fx

from ..pytorch import private_ops
from ..pytorch.sizes import tensors
from . import collectives, transfers

#: One storage: its identity, and its bytes: a number, or a symbol or function of the sizes.
Storage = Tuple[int, Union[int, torch.SymInt, Callable[[], int]]]
#: The storages of a node's value; None for what is no tensor.
Held = List[Optional[Storage]]


def storages(joint: fx.GraphModule) -> Dict[fx.Node, Held]:
    """The storages of each node's value, by a run of the joint graph on fake tensors."""
    result: Dict[fx.Node, Held] = {}
    alive: List[Any] = []  # a storage's identity is its address

    class Run(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            value = super().run_node(n)
            alive.append(value)
            if collectives.is_wait(n) or transfers.is_wait(n):  # on fake tensors it makes a new one
                result[n] = result[n.args[0]]
            elif n.op != "output":
                result[n] = [storage for leaf in private_ops.pytree.tree_leaves(value)
                             for storage in _storages(leaf)]
            return value

    values = [n.meta["val"] for n in joint.graph.find_nodes(op="placeholder")]
    # Of a graph without tensors among its inputs the mode is that of what it makes.
    mode = next((v.fake_mode for v in [*values, *(
        v for n in joint.graph.nodes for v in tensors(n.meta.get("val")))]
        if isinstance(v, torch.Tensor)), None)
    if mode is None:
        return {n: [None] for n in joint.graph.nodes if n.op != "output"}
    with mode, private_ops.sizes_of_its_own(mode):
        fresh = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device)
                 if isinstance(v, torch.Tensor) else v for v in values]
        Run(joint).run(*fresh)
    return result


def _storages(leaf: Any) -> List[Optional[Storage]]:
    """Where a value lies; of a sparse tensor what it consists of lies somewhere."""
    if not isinstance(leaf, torch.Tensor):
        return [None]
    return [(private_ops.storage_key(part), part.untyped_storage().nbytes())
            for part in private_ops.parts(leaf)]
