"""Seconds of the nodes of a joint graph: estimates, or what :mod:`..times.profile` measured."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import torch
import torch.fx as fx

from ..pytorch import loss_layer, private_kernels, private_ops
from ..pytorch.sizes import hint, resized, tensor_bytes, tensors
from . import transfers
from .collectives import network_bytes
from .layouts import has_channels_last, reads_copies, strides_of


class Roofline(NamedTuple):
    """A device by its speeds."""

    flops_per_s: float
    bytes_per_s: float
    #: Of its link to other devices.
    network_bytes_per_s: float = 50e9
    #: Of its link to the host, one way.
    host_bytes_per_s: float = 25e9


#: Estimates where nothing was measured: of a core of a CPU, and of the device that published tables
#: are for.
ROOFLINES = {"cpu": Roofline(50e9, 10e9), "reference": Roofline(10e12, 600e9)}
#: Share of their bandwidth time that fusible ops take under Inductor, for they become part of a
#: neighbour's kernel: what they read and write mostly stays in registers.
FUSED_SHARE = 0.1


def estimated_s(node: fx.Node, roofline: Roofline) -> float:
    """Seconds of one node by its arithmetic and by what it reads and writes."""
    over_network_bytes = network_bytes(node)
    if over_network_bytes is not None:
        return over_network_bytes / roofline.network_bytes_per_s
    if transfers.is_copy(node):
        return hint(tensor_bytes(node.meta["val"])) / roofline.host_bytes_per_s
    if transfers.is_wait(node):
        return 0.0
    values = private_ops.pytree.tree_map(
        lambda a: a.meta.get("val") if isinstance(a, fx.Node) else a, (node.args, node.kwargs))
    moved = tensors(values) + tensors(node.meta.get("val"))
    count = resized(hint(private_ops.flops(node, values))) \
        or hint(loss_layer.flops(node.target, values[0])) \
        or max((resized(hint(t.numel())) for t in moved), default=0)
    moved_bytes = sum(map(tensor_bytes, moved)) + \
        hint(loss_layer.score_bytes(node.target, values[0]))
    return count / roofline.flops_per_s + moved_bytes / roofline.bytes_per_s


def signature(node: fx.Node, copies: Optional[bool] = None) -> str:
    """What decides a node's time: operator, sizes, layouts, types and numbers.

    ``copies``: whether it reads copies; by default what the node says.
    """
    return call_signature(node.target, node.args, node.kwargs, has_channels_last(node)) + (
        " of copies" if (reads_copies(node) if copies is None else copies) else "")


def signatures(node: fx.Node) -> Dict[str, bool]:
    """Of all ways in which a node may run, with whether it reads copies: in depth it reads none."""
    return {signature(node, copies): copies for copies in {reads_copies(node), False}}


def call_signature(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any],
                   channels_last: bool = False) -> str:
    """The same of a call with values."""

    def words(value: Any) -> str:
        if isinstance(value, fx.Node):
            value = value.meta.get("val")
        if isinstance(value, torch.SymInt):
            value = hint(value)
        if isinstance(value, (list, tuple)):
            return "(%s)" % ",".join(map(words, value))
        if isinstance(value, torch.Tensor):
            return "%s%s%s" % (str(value.dtype)[6:], [hint(n) for n in value.shape],
                               strides_of(value, channels_last))
        return str(value)
    return "%s%s%s" % (target, words(args),
                       ["%s=%s" % (k, words(v)) for k, v in sorted(kwargs.items())])


def roofline_for(costs: str, device: str) -> str:
    """A name in :data:`ROOFLINES`; "auto" goes by the device."""
    usual = "cpu" if device == "cpu" else "reference"
    return usual if costs == "auto" else costs


def times_s(nodes: Sequence[Optional[fx.Node]], parts: Sequence[Sequence[fx.Node]],
            roofline: Roofline, fused: bool, measured_s: Mapping[str, float]) -> List[float]:
    """Seconds of each op, by its node and the nodes that are part of it; 0 for None.

    ``measured_s`` goes by :func:`signature`.
    """
    known: Dict[str, float] = {}

    def time_s(node: Optional[fx.Node]) -> float:
        if node is None:
            return 0.0
        key = signature(node)
        if key not in known:
            known[key] = measured_s[key] if key in measured_s else estimated_s(node, roofline)
        return known[key] * (FUSED_SHARE if fused and private_kernels.is_fusible(node) else 1.0)
    return [sum(map(time_s, [node, *others])) for node, others in zip(nodes, parts)]
