"""Inductor's layouts: where it sees fit, convolutions of images work on tensors with channels last.

Parameters and inputs of a step are then copied, once, and the copies live until backward has read
them.
"""
from __future__ import annotations

from typing import Any, List, Sequence, Set

import torch
import torch.fx as fx

from ..pytorch import private, private_kernels, private_ops
from ..pytorch.sizes import hint, tensors

_CONVOLUTIONS = {torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default}
#: Dimensions of a batch of images.
_DIMENSIONS = 4
_MARK, _COPIED = "memonger_channels_last", "memonger_copied"


def mark_layouts(joint: fx.GraphModule) -> None:
    """Note at each convolution of a joint graph whether Inductor arranges its operands.

    In a half that it does not arrange, gradients of filters with one channel read copies as traced.
    """
    if not private_ops.arranges_convolutions(joint):
        return
    copied = private.has_no_layouts_unplanned(joint)
    for node in filter(is_convolution, joint.graph.nodes):
        if node.args[1].meta["val"].dim() == _DIMENSIONS:
            node.meta[_MARK] = True
            node.meta[_COPIED] = copied and \
                node.target is torch.ops.aten.convolution_backward.default and \
                node.args[2].meta["val"].shape[1] == 1


def is_convolution(node: fx.Node) -> bool:
    """Whether it is a convolution or its gradients."""
    return node.target in _CONVOLUTIONS


def has_channels_last(node: fx.Node) -> bool:
    """Whether the node works on operands with channels last."""
    return _MARK in node.meta


def with_channels_last(nodes: Sequence[fx.Node]) -> Set[fx.Node]:
    """The nodes of a graph, in order, that kernels write with channels last.

    What convolutions give or read, and what is made of such images.
    """
    found: Set[fx.Node] = set()
    for node in nodes:
        is_image = any(value.dim() == _DIMENSIONS for value in tensors(node.meta.get("val")))
        if has_channels_last(node) or is_image and (
                not found.isdisjoint(node.all_input_nodes)
                or any(map(has_channels_last, node.users))):
            found.add(node)
    return found


def out_of_order(nodes: Sequence[fx.Node]) -> Set[fx.Node]:
    """Random numbers that kernels with channels last read in another order than they are drawn."""
    if not any(map(has_channels_last, nodes)):
        return set()
    return {node for node in nodes
            if private_kernels.is_random(node) and node.meta["val"].dim() == _DIMENSIONS}


def reads_copies(node: fx.Node) -> bool:
    """Whether code copies those operands to the layouts in which they were traced."""
    return bool(node.meta.get(_COPIED))


def read_no_copies(joint: fx.GraphModule) -> bool:
    """From now on gradients read no copies: the half that they are in is to be arranged.

    Returns whether any did.
    """
    copying = [node for node in joint.graph.nodes if reads_copies(node)]
    for node in copying:
        node.meta[_COPIED] = False
    return bool(copying)


def gradients_are_arranged(joint: fx.GraphModule) -> bool:
    """Whether gradients of filters with one channel are to read what they are given, and no copies.

    Inductor arranges a backward half only for convolutions that run again in it.
    """
    return any(has_channels_last(node) and not reads_copies(node)
               and node.args[2].meta["val"].shape[1] == 1 for node in joint.graph.find_nodes(
                   op="call_function", target=torch.ops.aten.convolution_backward.default))


def arranged(value: Any) -> Any:
    """The value with channels last, where it is a tensor that has channels; else as it is."""
    return value if is_arranged(value) else value.contiguous(memory_format=torch.channels_last)


def is_arranged(value: Any) -> bool:
    """Whether the value needs no copy to have its channels last."""
    return not isinstance(value, torch.Tensor) or \
        strides_of(value, True) == strides_of(value, False)


def strides_of(value: torch.Tensor, channels_last: bool) -> List[int]:
    """The strides of a tensor, or of its copy with channels last; of dynamic sizes by their hints.

    PyTorch's own question would make the answer a condition of the compiled code.
    """
    shape, strides = ([hint(n) for n in numbers] for numbers in (value.shape, value.stride()))
    if not channels_last or value.dim() != _DIMENSIONS:
        return strides
    wanted, step = list(strides), 1
    for dim in (1, *range(value.dim() - 1, 1, -1), 0):
        wanted[dim], step = step, step * shape[dim]
    same = all(n == 1 or one == other for n, one, other in zip(shape, strides, wanted))
    return strides if same else wanted


def as_traced(node: fx.Node, value: Any) -> Any:
    """A node's result, with its dimensions in the order in memory that was traced where that
    matters.

    A few kernels, as of BatchNorm on a transposed input, give another one than their fake tensors.
    A result of which all views can be taken is given back as it is.
    """
    traced = node.meta.get("val")
    if isinstance(value, (tuple, list)) and isinstance(traced, (tuple, list)):
        laid = [_as_traced(one, other, [n for n in node.users if n.args[1:] == (place,)])
                for place, (one, other) in enumerate(zip(value, traced))]
        return value if all(a is b for a, b in zip(laid, value)) else tuple(laid)
    return _as_traced(value, traced, [node])


def _as_traced(value: Any, traced: Any, nodes: Sequence[fx.Node]) -> Any:
    wanted = _order(traced)
    if not wanted or _order(value) in ([], wanted) or all(_shows(n, value) for n in nodes):
        return value
    return value.permute(wanted).contiguous().permute(
        sorted(range(len(wanted)), key=wanted.__getitem__))


def _shows(node: fx.Node, value: torch.Tensor) -> bool:
    """Whether all views that the graph takes of a node can be taken of this value.

    Not where it leaves the graph, as there may be others elsewhere.
    """
    for user in node.users:
        if user.op == "output" or user.target is torch.ops.aten.as_strided.default:
            return False
        if not private_ops.makes_view(user.target):
            continue
        args, named = fx.node.map_arg((user.args, user.kwargs), lambda n: value if n is node
                                      else hint(n.meta["val"]))
        try:
            shown = user.target(*args, **named)
        except RuntimeError:
            return False
        if not _shows(user, shown):
            return False
    return True


def _order(value: Any) -> List[int]:
    """The dimensions of a tensor from the outermost in memory to the innermost.

    [] of what is no tensor, or has not one place in memory for each element without gaps.
    """
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return []
    sizes, strides = ([hint(n) for n in numbers] for numbers in (value.shape, value.stride()))
    order = sorted(range(len(sizes)), key=lambda d: (sizes[d] == 1, -strides[d]))
    step = 1
    for dim in reversed(order):
        if sizes[dim] != 1 and strides[dim] != step:
            return []
        step *= sizes[dim]
    return order
