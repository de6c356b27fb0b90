"""Tensors of a node's value, and their sizes as numbers.

A compiled graph may have symbols for sizes. They stand for the sizes of the example inputs, or for
those that are :func:`in_force`.
"""
from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch

from . import private_sizes
from .private_ops import most, pytree

#: What each symbol stands for.
Values = Dict[Any, int]
_VALUES: ContextVar[Optional[Mapping[Any, int]]] = ContextVar("sizes in force", default=None)
#: The batch of the example inputs, and the one that sizes are asked for.
_BATCHES: ContextVar[Tuple[int, int]] = ContextVar("batches", default=(1, 1))


def tensors(value: Any) -> List[torch.Tensor]:
    """All tensors of a value, through tuples and dictionaries."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def hint(size: Any) -> int:
    """A size as a number; of a dynamic one that in force, else that of the example inputs.

    Of one that depends on values it is the most that it can be, or 0 where nobody knows that.
    """
    if not isinstance(size, torch.SymInt):
        return int(size)
    if size.node.hint is None:
        return most(size) or 0
    return private_sizes.evaluated(size, _VALUES.get())


def open_sizes(value: Any) -> List[torch.SymInt]:
    """Numbers of elements that depend on values, as that of ``x[mask]`` does."""
    counts = [t.numel() for t in tensors(value)]
    return [n for n in counts if isinstance(n, torch.SymInt) and n.node.hint is None]


def tensor_bytes(value: torch.Tensor) -> int:
    return resized(hint(value.numel())) * value.element_size()


@contextlib.contextmanager
def in_force(values: Optional[Mapping[Any, int]]) -> Iterator[None]:
    """In the block symbols stand for these values; None: for those of the example inputs."""
    token = _VALUES.set(values)
    try:
        yield
    finally:
        _VALUES.reset(token)


@contextlib.contextmanager
def at_batch(read: int, batch: int) -> Iterator[None]:
    """In the block :func:`resized` gives sizes of a step with another batch than it was read with.

    ``read``: a prime number that divides no other dimension, so that it tells which sizes grow.
    """
    token = _BATCHES.set((read, batch))
    try:
        yield
    finally:
        _BATCHES.reset(token)


def resized(size: int) -> int:
    """A size at the batch that is asked for: in proportion, where it has the batch in it."""
    read, batch = _BATCHES.get()
    return size // read * batch if size % read == 0 else size


class Symbols:
    """The symbols in a compiled graph's inputs, and where a call's arguments have their values."""

    def __init__(self, inputs: Sequence[Any]):
        #: Of each symbol all places: positions of arguments, and dimensions of tensors.
        self.places: Dict[Any, List[Tuple[int, int]]] = {}
        for position, value in enumerate(inputs):
            sizes = value.shape if isinstance(value, torch.Tensor) else [value]
            for dimension, size in enumerate(sizes):
                symbol = private_sizes.symbol_of(size)
                if symbol is not None:
                    self.places.setdefault(symbol, []).append((position, dimension))
        #: One place of each.
        self._numbers = [places[0] for places in self.places.values()]

    def key(self, arguments: Sequence[Any]) -> Tuple[int, ...]:
        """The values of the symbols in a call."""
        return tuple([argument if isinstance(argument := arguments[position], int)
                      else argument.shape[dimension] for position, dimension in self._numbers])

    def values(self, key: Sequence[int]) -> Values:
        """The values by symbol."""
        return dict(zip(self.places, key))
