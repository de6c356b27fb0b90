"""Tensors of a node's value, and their sizes as numbers."""
from __future__ import annotations

from typing import Any, List

import torch

from .private import pytree


def tensors(value: Any) -> List[torch.Tensor]:
    """All tensors of a value, through tuples and dictionaries."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def hint(size: Any) -> int:
    """A size as a number; of a dynamic one that of the example inputs."""
    return int(size.node.hint) if isinstance(size, torch.SymInt) else int(size)


def tensor_bytes(value: torch.Tensor) -> int:
    return hint(value.numel()) * value.element_size()
