"""Blocks at offsets of one buffer."""
from __future__ import annotations

import random
from dataclasses import replace

import strategies
from hypothesis import given
from small_graphs import blocks_of

from memonger import arena, packing, skyline
from memonger.blocks import Block, Blocks, StorageModel
from memonger.graph import Graph, Op, Tensor
from memonger.schedule import expand
from memonger.storage import build_program, plan_program, plan_storage
from memonger.validate import validate


def arena_of(*lives, effort=400):
    return arena.arena(blocks_of(*lives), StorageModel("arena", effort=effort), 4)


def test_nested_lives_lie_on_top_of_each_other():
    found = arena_of((0, 9, 16), (1, 8, 32), (2, 7, 16))
    assert found.offset_of == (0, 64, 192)
    assert (found.buffer_of, found.buffer_bytes) == ((0, 0, 0), (256,))


def test_two_small_blocks_lie_where_one_large_was():
    """Whole buffers would take 128 + 64 elements: a buffer serves one block at a time."""
    lives = ((0, 1, 128), (2, 3, 64), (2, 3, 64), (4, 4, 16))
    assert arena_of(*lives).pool_bytes == 512
    assert packing.best(blocks_of(*lives), StorageModel(), 4).pool_bytes == 768


def test_offsets_are_aligned_and_outputs_lie_apart():
    steps = 3
    lives = (Block(0, 1, 4, 1), Block(0, 1, 4, 1), Block(1, steps, 20, 5),
             Block(0, 1, 12, 3, apart=True))
    blocks = Blocks(steps, lives, (0, 1, 3), (0, 1, 2, 3), (-1,) * 4)
    found = arena.arena(blocks, StorageModel("arena"), 4)
    assert found.offset_of == (0, 64, 0, 0)
    assert found.buffer_of == (0, 0, 1, 2)
    assert found.buffer_bytes == (128, 20, 12)


def test_devices_and_pools_have_arenas_of_their_own():
    found = arena_of((0, 1, 16), (0, 1, 16, 1), (0, 1, 16, 0, 1))
    assert found.buffer_bytes == (64, 64, 64)
    assert len(set(found.buffer_of)) == 3


@given(strategies.planned_graphs(devices=2))
def test_nothing_in_an_arena_overlaps(case):
    graph, schedule = case
    found = plan_storage(graph, schedule, "arena", native=False)
    best = plan_storage(graph, schedule, "best", native=False)
    assert best.peak_live_bytes <= found.pool_bytes <= best.pool_bytes
    assert found.pool_bytes == sum(found.buffer_bytes)
    for i, one in enumerate(found.blocks.blocks if found.offset_of else ()):
        start = found.offset_of[i]
        assert start % arena.ALIGNMENT == 0
        assert start + one.bytes <= found.buffer_bytes[found.buffer_of[i]]
        for j, other in enumerate(found.blocks.blocks[:i]):
            if found.buffer_of[i] != found.buffer_of[j]:
                continue
            assert (one.device, one.pool) == (other.device, other.pool)
            assert not (arena.outlives(one, found.blocks) or arena.outlives(other, found.blocks))
            if one.start <= other.end and other.start <= one.end:
                assert not arena.overlap((start, start + one.bytes), (
                    found.offset_of[j], found.offset_of[j] + other.bytes))
    assert validate(graph, schedule, storage="arena", pool_bytes=found.pool_bytes) == []


def test_arenas_come_close_to_the_peak():
    excess = []
    for seed in range(60):
        rng = random.Random(seed)
        graph = strategies.training_graph(rng, 40)
        program = build_program(graph, expand(graph, strategies.decisions(rng, graph)))
        large = replace(program, bytes=tuple(1024 * b for b in program.bytes))
        found = plan_program(large, StorageModel("arena"))
        blocks = found.blocks.blocks
        beside = [block for block in blocks if arena.outlives(block, found.blocks)]
        least = skyline.bound([skyline.Rectangle(block.start, block.end, block.bytes)
                               for block in blocks if block not in beside])
        excess.append(found.pool_bytes / (least + sum(block.bytes for block in beside)) - 1)
    assert max(excess) < 0.03
    assert sum(excess) / 60 < 0.001


def test_only_the_run_whose_value_is_a_weight_lies_apart():
    tensors = (Tensor("data", 64, -1, "input", shape=(16,)), Tensor("w", 64, 0, shape=(16,)),
               Tensor("y", 64, 1, shape=(16,)), Tensor("g", 64, 2, shape=(16,)))
    ops = (Op("make", "Op", (0,), (1,)), Op("conv", "Convolution", (0, 1), (2,)),
           Op("conv_backward", "_backward_Convolution", (2, 1), (3,), is_backward=True,
              forward_op=1))
    graph = Graph(tensors, ops, (3,))
    program = build_program(graph, expand(graph, {0: {}}))
    assert [(value.tensor, away) for value, away in zip(program.values, program.apart)] == [
        (1, True), (2, False), (1, False), (3, False)]
