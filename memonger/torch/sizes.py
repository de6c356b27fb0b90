"""Tensors of a node's value, and their sizes as numbers."""
from __future__ import annotations

from typing import Any, List

import torch

from .private import most, pytree


def tensors(value: Any) -> List[torch.Tensor]:
    """All tensors of a value, through tuples and dictionaries."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def hint(size: Any) -> int:
    """A size as a number; of a dynamic one that of the example inputs.

    Of one that depends on values it is the most that it can be, or 0 where nobody knows that.
    """
    if not isinstance(size, torch.SymInt):
        return int(size)
    return int(size.node.hint if size.node.hint is not None else most(size) or 0)


def open_sizes(value: Any) -> List[torch.SymInt]:
    """Numbers of elements that depend on values, as that of ``x[mask]`` does."""
    counts = [t.numel() for t in tensors(value)]
    return [n for n in counts if isinstance(n, torch.SymInt) and n.node.hint is None]


def tensor_bytes(value: torch.Tensor) -> int:
    return hint(value.numel()) * value.element_size()
