"""Copies to the host and back that a graph holds: PyTorch's ``ao`` operators.

``ao::offload`` and ``ao::reload`` begin a copy on a stream of its own. An ``ao::wait_tensor`` ends
it: until then both memories are in use.
"""
from __future__ import annotations

import torch.fx as fx

from ..pytorch import private_ops

NAMESPACE = "ao"


def is_copy(node: fx.Node) -> bool:
    """Whether a node begins a copy."""
    return _name(node) in ("offload", "reload")


def is_to_host(node: fx.Node) -> bool:
    """Whether the result of a node lies on the host."""
    return _name(node) == "offload"


def is_wait(node: fx.Node) -> bool:
    """Whether a node ends a copy: it returns the memory that the copy wrote."""
    return _name(node) == "wait_tensor"


def _name(node: fx.Node) -> str:
    return private_ops.name_in(NAMESPACE, node.target)
