"""Blocks in whole buffers: MXNet's own assignment, and the best one."""
from __future__ import annotations

import random

import pytest
import strategies
from hypothesis import given
from reference.judge import round_up, validate
from small_graphs import storage_of

from memonger.graph.schedule import expand, expand_in_part
from memonger.memory.storage import plan_storage


def plan(graph, model="stock"):
    return plan_storage(graph, expand(graph, {}), model)


# --------------------------------------------------------------------------------- stock
@pytest.mark.parametrize("second, shared", [(16, True), (19, True), (20, False)])
def test_stock_shares_within_the_match_range(second, shared):
    found = storage_of((0, 0, 1), (1, 1, second), model="stock")
    assert found.buffer_of == ((0, 0) if shared else (0, 1))


def test_stock_takes_the_larger_free_buffer_first_and_grows_the_smaller_one_else():
    found = storage_of((0, 0, 8), (0, 0, 2), (1, 2, 4), (2, 2, 4), model="stock")
    assert found.buffer_of == (0, 1, 0, 1)
    assert found.buffer_bytes == (32, 16)


# ---------------------------------------------------------------------------------- best
def test_best_equals_the_bound_where_stock_does_not():
    # Stock puts the small block into the large buffer and needs another large one.
    lives = ((0, 0, 8), (1, 4, 1), (2, 4, 8))
    assert storage_of(*lives, model="stock").pool_bytes == 64
    best = storage_of(*lives, model="best")
    assert best.pool_bytes == best.lower_bound_bytes == 36


def exhaustive(blocks, rounding):
    """The smallest pool of all assignments."""
    least = [sum(round_up(b.bytes, rounding) for b in blocks.blocks) + 1]
    buffers = []

    def place(index):
        total = sum(max(round_up(b.bytes, rounding) for b in buffer)
                    for buffer in buffers)
        if total >= least[0]:
            return
        if index == len(blocks.blocks):
            least[0] = total
            return
        block = blocks.blocks[index]
        for buffer in buffers:
            if all((b.pool, b.device) == (block.pool, block.device)
                   and (b.end < block.start or block.end < b.start) for b in buffer):
                buffer.append(block)
                place(index + 1)
                buffer.pop()
        buffers.append([block])
        place(index + 1)
        buffers.pop()

    place(0)
    return least[0]


def test_best_against_all_assignments_of_small_graphs():
    optimal, cases = 0, 150
    for seed in range(cases):
        rng = random.Random(seed)
        graph = strategies.training_graph(rng, 3, devices=rng.choice((1, 2)))
        found = plan(graph, "best")
        if len(found.blocks.blocks) > 11:
            found = plan(strategies.training_graph(rng, 1), "best")
        least = exhaustive(found.blocks, 4)
        assert found.peak_live_bytes <= found.lower_bound_bytes <= least <= found.pool_bytes
        optimal += found.pool_bytes == least
    assert optimal == cases


@given(strategies.planned_graphs(devices=2))
def test_order_of_peak_bound_best_and_stock(case):
    graph, schedule = case
    best = plan_storage(graph, schedule, "best")
    stock = plan_storage(graph, schedule, "stock")
    assert best.peak_live_bytes <= best.lower_bound_bytes <= best.pool_bytes <= stock.pool_bytes
    assert best.blocks == stock.blocks
    for model, found in (("best", best), ("stock", stock)):
        assert validate(graph, schedule, storage=model, pool_bytes=found.pool_bytes) == []


def test_best_is_at_the_bound_for_most_graphs():
    at_bound, excess = 0, 0.0
    for seed in range(60):
        rng = random.Random(seed)
        graph = strategies.training_graph(rng, 40)
        found = plan_storage(graph, expand_in_part(graph, strategies.decisions(rng, graph)), "best")
        at_bound += found.pool_bytes == found.lower_bound_bytes
        excess += found.pool_bytes / found.lower_bound_bytes - 1
    assert at_bound >= 30
    assert excess / 60 < 0.01
