"""Blocks at offsets of one buffer."""
from __future__ import annotations

import random
from dataclasses import replace

import strategies
from hypothesis import given
from reference.judge import ALIGNMENT, validate
from small_graphs import program_of, storage_of

from memonger.graph.schedule import expand, expand_in_part
from memonger.graph.types import Graph, Op, Tensor
from memonger.memory import arena
from memonger.memory.liveness import build_program
from memonger.memory.storage import plan_program, plan_storage


def test_nested_lives_lie_on_top_of_each_other():
    found = storage_of((0, 1, 128), (2, 9, 16), (3, 8, 32), (3, 8, 16), model="arena")
    assert found.offset_of == (0, 0, 64, 192)
    assert (found.buffer_of, found.buffer_bytes) == ((0, 0, 0, 0), (512,))


def test_two_small_blocks_lie_where_one_large_was():
    """Whole buffers would take 128 + 64 elements: a buffer serves one block at a time."""
    lives = ((0, 1, 128), (2, 3, 64), (2, 3, 64), (4, 4, 16))
    assert storage_of(*lives, model="arena").pool_bytes == 512
    assert storage_of(*lives, model="best").pool_bytes == 768


def test_offsets_are_aligned_and_outputs_lie_apart():
    program = program_of((0, 1, 1), (0, 1, 1), (1, 1, 5), (0, 1, 128), (2, 3, 64), (2, 3, 64),
                         (0, 1, 3))
    program = replace(program, held=(0, 0, 1, 0, 0, 0, 0), own_buffer=(False,) * 6 + (True,))
    found = plan_program(program, "arena")
    where = {(block.elements, found.buffer_of[i]): found.offset_of[i] % ALIGNMENT
             for i, block in enumerate(found.blocks.blocks)}
    assert not any(where.values())
    alone = {block.elements: found.buffer_of.count(found.buffer_of[i]) == 1
             for i, block in enumerate(found.blocks.blocks)}
    assert alone == {1: False, 5: True, 128: False, 64: False, 3: True}


@given(strategies.planned_graphs(devices=2))
def test_nothing_in_an_arena_overlaps(case):
    graph, schedule = case
    found = plan_storage(graph, schedule, "arena")
    best = plan_storage(graph, schedule, "best")
    assert best.peak_live_bytes <= found.pool_bytes <= best.pool_bytes
    assert found.pool_bytes == sum(found.buffer_bytes)
    assert all(offset % ALIGNMENT == 0 for offset in found.offset_of)
    assert validate(graph, schedule, storage="arena", pool_bytes=found.pool_bytes) == []


def test_arenas_come_close_to_the_peak():
    excess = []
    for seed in range(60):
        rng = random.Random(seed)
        graph = strategies.training_graph(rng, 40)
        program = build_program(graph, expand_in_part(graph, strategies.decisions(rng, graph)))
        large = replace(program, bytes=tuple(1024 * b for b in program.bytes))
        found = plan_program(large, "arena")
        blocks = found.blocks.blocks
        beside = [block for block in blocks if arena.outlives(block, found.blocks)]
        inside = [block for block in blocks if block not in beside]
        least = max(sum(b.bytes for b in inside if b.start <= step <= b.end)
                    for step in range(len(program.steps)))
        excess.append(found.pool_bytes / (least + sum(block.bytes for block in beside)) - 1)
    assert max(excess) < 0.03
    assert sum(excess) / 60 < 0.001


def test_only_the_run_whose_value_is_a_weight_lies_apart():
    tensors = (Tensor("data", 64, -1, "input", shape=(16,)), Tensor("w", 64, 0, shape=(16,)),
               Tensor("y", 64, 1, shape=(16,)), Tensor("g", 64, 2, shape=(16,)))
    ops = (Op.of("make", "Op", (0,), (1,)), Op.of("conv", "op", (0, 1), (2,), own_buffers=(1,)),
           Op.of("conv_backward", "_backward_Convolution", (2, 1), (3,), is_backward=True,
                 forward_op=1))
    graph = Graph(tensors, ops, (3,))
    program = build_program(graph, expand(graph, {0: {}}))
    assert [(value.tensor, away) for value, away in zip(program.values, program.own_buffer)] == [
        (1, True), (2, False), (1, False), (3, False)]
