"""What follows from a graph is computed once for each graph, and forgotten with it."""
from __future__ import annotations

import gc
import weakref

from small_graphs import chain

from memonger.graph.cache import Cache


def test_results_are_computed_once_and_the_oldest_go_first() -> None:
    graph, cache, computed = chain((400,), (1.0,)), Cache(most=2), []

    def asked(key: str) -> str:
        return cache.of(graph, key, lambda: computed.append(key) or key)
    assert [asked(key) for key in "abaca"] == list("abaca")
    assert computed == ["a", "b", "c"]
    asked("b")
    assert computed == ["a", "b", "c", "b"]


def test_caches_and_graphs_are_apart_and_nothing_outlives_a_graph() -> None:
    one, other = chain((400,), (1.0,)), chain((400,), (1.0,))
    first, second = Cache(), Cache()
    assert [first.of(one, 0, lambda: 1), first.of(other, 0, lambda: 2),
            second.of(one, 0, lambda: 3), first.of(one, 0, lambda: 4)] == [1, 2, 3, 1]
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None
