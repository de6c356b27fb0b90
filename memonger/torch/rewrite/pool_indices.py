"""Positions that max-pooling keeps for its gradient, in the smallest type that holds them.

ATen's max-pooling gives int64 positions within a plane (the spatial dimensions of its input).
Between forward and backward they are kept as uint8, uint16 or uint32, which loses nothing. Inductor
has operators of its own for that.
"""
from __future__ import annotations

import math
import operator
from typing import Any, Dict, Optional

import torch
import torch.fx as fx

from ..pytorch import private_joint

_ATEN = torch.ops.aten
#: Number of spatial dimensions by operator; its second result are the positions.
_POOLINGS: Dict[Any, int] = {
    _ATEN.max_pool2d_with_indices: 2, _ATEN.max_pool3d_with_indices: 3,
    _ATEN.adaptive_max_pool2d: 2, _ATEN.adaptive_max_pool3d: 3,
    _ATEN.fractional_max_pool2d: 2, _ATEN.fractional_max_pool3d: 3}
#: Types by the number of positions that they hold.
_TYPES = {1 << 8: torch.uint8, 1 << 16: torch.uint16, 1 << 32: torch.uint32}


def narrow_indices(joint: fx.GraphModule) -> None:
    """Keep the positions of each max-pooling of a joint graph in a smaller type.

    Those that only backward reads, in planes of a size that is known. Linear in the graph.
    """
    for node in list(joint.graph.nodes):
        narrow = _narrow_type(node)
        taken = [u for u in node.users if u.target is operator.getitem and u.args[1] == 1]
        if narrow is None or private_joint.is_backward(node):
            continue
        for indices in taken:
            readers = list(indices.users)
            if readers and all(map(private_joint.is_backward, readers)):
                with joint.graph.inserting_after(indices):
                    kept = _converted(indices, narrow, indices)
                for reader in readers:
                    with joint.graph.inserting_before(reader):
                        reader.replace_input_with(indices, _converted(kept, torch.int64, reader))
    joint.recompile()


def _narrow_type(node: fx.Node) -> Optional[torch.dtype]:
    """The type for the positions of a pooling; None for other nodes and unknown sizes."""
    dimensions = _POOLINGS.get(getattr(node.target, "overloadpacket", None))
    if dimensions is None:
        return None
    plane = node.all_input_nodes[0].meta["val"].shape[-dimensions:]
    if any(isinstance(size, torch.SymInt) for size in plane):
        return None
    return next((dtype for count, dtype in _TYPES.items() if math.prod(plane) <= count), None)


def _converted(node: fx.Node, dtype: torch.dtype, beside: fx.Node) -> fx.Node:
    """A conversion of ``node`` in the half of the step, and the module, of ``beside``."""
    made = node.graph.call_function(_ATEN._to_copy.default, (node,), {"dtype": dtype})
    value = node.meta["val"]
    with value.fake_mode:
        made.meta = {**beside.meta, "val": value.to(dtype)}
    return made
