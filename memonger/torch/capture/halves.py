"""Which half of a step each node of a joint graph runs in."""
from __future__ import annotations

from typing import Container, Sequence, Set

import torch.fx as fx

from ..pytorch import private_joint, private_ops


def of_backward(joint: fx.GraphModule, nodes: Sequence[fx.Node],
                num_forward_outputs: int) -> Set[fx.Node]:
    """What runs in backward: what depends on a gradient, or was traced there and is not needed by
    forward.

    PyTorch marks some values of forward as of backward, as of a sum that softplus is taken of, and
    others not at all, as inside an ``autograd.Function``.
    """
    late: Set[fx.Node] = set()
    needed = _needed(joint, nodes, num_forward_outputs)
    for node in nodes:
        if node.op == "placeholder":
            if private_joint.is_tangent(node):
                late.add(node)
        elif any(i in late for i in node.all_input_nodes) or node not in needed and (
                private_joint.is_backward(node)
                or node.op != "get_attr" and not private_joint.is_forward(node)):
            late.add(node)
    return late


def moved_to_forward(nodes: Sequence[fx.Node], late: Container[fx.Node], names: Container[str],
                     written: Container[fx.Node]) -> Set[fx.Node]:
    """Nodes among the late ones that PyTorch runs in forward, whose ``names`` are given.

    Masks, and what else is kept for backward in place of what it is made of. ``written``: values
    that the step writes into.
    """
    early: Set[fx.Node] = set()
    for node in nodes:
        read = node.all_input_nodes
        if node in late and node.name in names and read and all(
                (i not in late or i in early) and i not in written for i in read):
            early.add(node)
    return early


def _needed(joint: fx.GraphModule, nodes: Sequence[fx.Node],
            num_forward_outputs: int) -> Set[fx.Node]:
    """What forward computes for its outputs, and for what it writes into its inputs."""
    outputs = joint.graph.output_node().args[0][:num_forward_outputs]
    needed = {value for value in outputs if isinstance(value, fx.Node)}
    for node in reversed(nodes):
        if node in needed or private_ops.writes(node.target) \
                and not private_joint.is_backward(node):
            needed.update((node, *node.all_input_nodes))
    return needed
