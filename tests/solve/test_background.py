"""Native searches in a thread of their own."""
import ctypes
import time
from dataclasses import replace

import pytest
from training_nets import residual_network

from memonger.solve import Options
from memonger.solve.board import Board
from memonger.solve.search.background import BackgroundSearch
from memonger.solve.search.decisions import INTERRUPTED
from memonger.solve.search.native import NativeSearch

GRAPH = residual_network(8)
OPTIONS = Options(storage="arena")


def _room():
    search = NativeSearch(GRAPH, OPTIONS)
    return search.evaluate(search.unplanned()).pool_bytes * 3 // 4


def test_a_thread_finds_what_the_caller_would_find():
    here = NativeSearch(GRAPH, OPTIONS).search(_room(), 10 ** 6, 60.0, 3)
    other = NativeSearch(GRAPH, OPTIONS)
    there = BackgroundSearch(other, (_room(), 10 ** 6, 60.0, 3), None).result()
    assert there == here and there.feasible


def test_stopped_it_returns_the_best_so_far():
    endless = BackgroundSearch(NativeSearch(GRAPH, OPTIONS), (_room(), 10 ** 14, 600.0, 1), None)
    time.sleep(0.2)
    found = endless.stop()
    assert found.stop == INTERRUPTED and len(found.schedule.steps) >= len(GRAPH.ops)


def test_stopped_before_it_began_it_returns_the_unplanned_step():
    for storage in ("live", "best", "arena"):
        stop = ctypes.c_int32(1)
        found = NativeSearch(GRAPH, replace(OPTIONS, storage=storage)).search(
            _room(), 10 ** 9, 60.0, stop=stop)
        assert (found.stop, found.feasible) == (INTERRUPTED, False)
        assert len(found.schedule.steps) == len(GRAPH.ops)


def test_errors_of_the_thread_are_raised_where_it_is_waited_for():
    class Broken:
        def search(self, *_, **__):
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        BackgroundSearch(Broken(), (1, 1, 1.0, 1), None).result()


def test_ctrl_c_in_the_block_keeps_what_was_found_beside():
    search = Board.start(GRAPH, _room(), OPTIONS)
    with search.walks.beside(search, 10 ** 14):
        time.sleep(0.2)
        raise KeyboardInterrupt
    assert search.interrupted and search.best is not None


def test_an_error_in_the_block_ends_the_search_beside():
    search = Board.start(GRAPH, _room(), OPTIONS)
    with pytest.raises(ZeroDivisionError), search.walks.beside(search, 10 ** 14):
        raise ZeroDivisionError
    assert search.best is None
