"""What follows from a graph alone is computed once, and kept with the graph."""
from __future__ import annotations

from typing import Callable, Dict, Generic, Hashable, TypeVar

from .types import Graph

#: What is computed.
T = TypeVar("T")


class Cache(Generic[T]):
    """Results of one kind for all graphs.

    Parameters
    ----------
    most : int
        How many results are kept for a graph, those used last; 0: all.
    """

    def __init__(self, most: int = 0):
        self._most = most

    def of(self, graph: Graph, key: Hashable, compute: Callable[[], T]) -> T:
        """The result that is kept for a graph and a key, else what ``compute`` returns."""
        kept: Dict[Hashable, T] = graph.derived.setdefault(self, {})
        result = kept.pop(key) if key in kept else compute()
        while self._most and len(kept) >= self._most:
            del kept[next(iter(kept))]
        kept[key] = result
        return result
