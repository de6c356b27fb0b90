"""Collectives of a step on several devices: what they move, and where their results lie.

A functional collective (``_c10d_functional``) begins the work, and a ``wait_tensor`` in the same
memory ends it. They may run again: all ranks plan alike.
"""
from __future__ import annotations

from typing import Optional

import torch.fx as fx

from ..pytorch import private_ops
from ..pytorch.sizes import hint, tensor_bytes, tensors

NAMESPACE = "_c10d_functional"
#: How often its larger side crosses the link of a rank: a ring passes each part on once, and an
#: all-reduce goes around twice (Patarasuk and Yuan, 2009).
_ROUNDS = {"all_gather_into_tensor": 1, "reduce_scatter_tensor": 1, "all_to_all_single": 1,
           "broadcast": 1, "all_reduce": 2}


def is_wait(node: fx.Node) -> bool:
    """Whether a node ends a collective: it returns the memory that the collective wrote."""
    return _name(node) == "wait_tensor"


def network_bytes(node: fx.Node) -> Optional[int]:
    """What a collective brings over the link of a rank; None for other nodes.

    For several tensors at a time it is their sum.
    """
    name = _name(node)
    if name not in _ROUNDS:
        return None
    given = private_ops.pytree.tree_map(
        lambda a: a.meta.get("val") if isinstance(a, fx.Node) else a, (node.args, node.kwargs))
    largest = max(sum(hint(tensor_bytes(t)) for t in tensors(side))
                  for side in (given, node.meta.get("val")))
    ranks = private_ops.named_arguments(node).get("group_size", 0)
    share = (ranks - 1) / ranks if isinstance(ranks, int) and ranks else 1.0
    return int(_ROUNDS[name] * share * largest)


def _name(node: fx.Node) -> str:
    """The name of a collective, however many tensors it takes; "" of other operators."""
    return private_ops.name_in(NAMESPACE, node.target).replace("_coalesced", "").rstrip("_")
