"""Blocks, stock and best assignment: exact small cases, and Python against C++."""
from __future__ import annotations

import random
from dataclasses import replace

import pytest
import strategies
from hypothesis import given
from native_core import storage_core  # noqa: F401

from memonger import arena, packing, skyline, storage_native
from memonger.blocks import Block, Blocks, ProgramStep, StorageModel
from memonger.decisions import graph_in_use
from memonger.graph import Graph, Inplace, Op, Tensor
from memonger.schedule import expand
from memonger.storage import build_program, plan_program, plan_storage
from memonger.validate import validate


def chain(*sizes, inplace=False, outputs=None, dtype="float32", **options):
    """a0 -> a1 -> ..., each op reading the one before."""
    tensors = tuple(Tensor("a%d" % i, 4 * n, i, shape=(n,), dtype=dtype)
                    for i, n in enumerate(sizes))
    pairs = (Inplace(0, 0),) if inplace else ()
    ops = tuple(Op("op%d" % i, "Op", (i - 1,) if i else (), (i,), inplace=pairs if i else ())
                for i in range(len(sizes)))
    return Graph(tensors, ops, (len(sizes) - 1,) if outputs is None else outputs, **options)


def plan(graph, model="stock"):
    return plan_storage(graph, expand(graph, {}), model, native=False)


def blocks_of(*lives):
    """Blocks from (start, end, elements) or (start, end, elements, device, pool)."""
    made = tuple(Block(life[0], life[1], 4 * life[2], *life[2:]) for life in lives)
    steps = 1 + max(block.end for block in made)
    released = tuple(sorted((i for i, b in enumerate(made) if b.end < steps),
                            key=lambda i: made[i].end))
    return Blocks(steps, made, released, tuple(range(len(made))), (-1,) * len(made))


# --------------------------------------------------------------------------------- blocks
def test_a_chain_without_inplace_needs_two_buffers():
    found = plan(chain(1, 1, 1, 1))
    assert [(b.start, b.end) for b in found.blocks.blocks] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert found.buffer_of == (0, 1, 0, 1)
    assert (found.pool_bytes, found.peak_live_bytes, found.step_of_peak) == (8, 8, 1)


def test_inplace_makes_one_block():
    found = plan(chain(1, 1, 1, inplace=True))
    assert [(b.start, b.end) for b in found.blocks.blocks] == [(0, 3)]
    assert found.blocks.inplace_index == (-1, 0, 0)
    assert found.storage_ids == (0, 0, 0)


def test_a_second_reader_forbids_inplace_but_not_identity():
    tensors = tuple(Tensor(n, 4, i, shape=(1,)) for i, n in enumerate("abc"))
    ops = [Op("a", "Op", (), (0,)), Op("b", "Op", (0,), (1,), inplace=(Inplace(0, 0),)),
           Op("c", "Op", (0, 1), (2,))]
    assert len(plan(Graph(tensors, tuple(ops), (2,))).blocks.blocks) == 3
    ops[1] = replace(ops[1], inplace=(Inplace(0, 0, identity=True),))
    assert len(plan(Graph(tensors, tuple(ops), (2,))).blocks.blocks) == 2


def test_inplace_needs_equal_elements_and_item_size():
    for dtype, shape, blocks in (("int32", (1,), 1), ("float16", (1,), 2), ("float32", (2,), 2)):
        tensors = (Tensor("a", 4, 0, shape=(1,)), Tensor("b", 4, 1, shape=shape, dtype=dtype))
        ops = (Op("a", "Op", (), (0,)), Op("b", "Op", (0,), (1,), inplace=(Inplace(0, 0),)))
        assert len(plan(Graph(tensors, ops, (1,))).blocks.blocks) == blocks


def test_an_op_that_ignores_all_inputs_is_not_in_place():
    tensors = (Tensor("a", 4, 0, shape=(1,)), Tensor("b", 4, 1, shape=(1,)))
    ops = (Op("a", "Op", (), (0,)),
           Op("b", "zeros_like", (0,), (1,), ignored_inputs=(0,), inplace=(Inplace(0, 0),)))
    found = plan(Graph(tensors, ops, (1,)))
    assert found.blocks.block_of == (0, 1)
    assert found.blocks.inplace_index == (-2, -1)  # nobody reads a


def test_an_unread_output_is_freed_at_its_own_step():
    found = plan(chain(1, 5, 5, outputs=(0,)))
    assert found.blocks.blocks[2] == Block(2, 2, 20, 5)
    assert found.blocks.blocks[0].end == 3


def test_outputs_of_one_op_are_requested_largest_and_last_first():
    tensors = tuple(Tensor("t%d" % i, 4 * n, 0, shape=(n,)) for i, n in enumerate((1, 3, 3)))
    graph = Graph(tensors, (Op("split", "Op", (), (0, 1, 2)),), (0, 1, 2))
    assert plan(graph).blocks.block_of == (2, 1, 0)


def test_external_arrays_have_no_block():
    graph = chain(1, 1, inplace=True)
    graph = replace(graph, tensors=(graph.tensors[0], replace(graph.tensors[1], pooled=False)))
    found = plan(graph)
    assert found.storage_ids == (0, -2)
    assert found.pool_bytes == 4


def test_a_grad_add_in_place_leaves_the_right_buffer_empty():
    tensors = tuple(Tensor(n, 400, i, shape=(100,)) for i, n in enumerate("lrs"))
    ops = (Op("l", "Op", (), (0,)), Op("r", "Op", (), (1,)),
           Op("s", "_grad_add", (0, 1), (2,), True, inplace=(Inplace(0, 0),)))
    found = plan(Graph(tensors, ops, (2,)))
    assert (found.pool_bytes, found.printed_bytes) == (400, 800)
    plain = replace(ops[2], kind="elemwise_add")
    assert plan(Graph(tensors, (*ops[:2], plain), (2,))).pool_bytes == 800


def test_the_executor_rounds_buffers_up_to_four_bytes():
    graph = Graph((Tensor("mask", 5, 0, shape=(5,), dtype="uint8"),), (Op("m", "Op", (), (0,)),),
                  (0,))
    found = plan(graph)
    assert (found.pool_bytes, found.peak_live_bytes, found.printed_bytes) == (8, 5, 20)
    assert plan(replace(graph, pools="cached_op")).pool_bytes == 5


def test_a_cached_op_keeps_what_backward_reads_and_shares_nothing():
    tensors = tuple(Tensor(n, 4, i, shape=(1,)) for i, n in enumerate("abcd"))
    ops = (Op("a", "Op", (), (0,)), Op("b", "Op", (0,), (1,)),
           Op("c", "Op", (1,), (2,), True, inplace=(Inplace(0, 0),)),
           Op("d", "Op", (2,), (3,), True))
    found = plan(Graph(tensors, ops, (3,), pools="cached_op"))
    assert [(b.start, b.end, b.pool) for b in found.blocks.blocks] == [
        (0, 1, 0), (1, 4, 0), (2, 3, 1), (3, 4, 1)]
    assert found.pool_bytes == 16
    assert plan(Graph(tensors, ops, (3,))).pool_bytes == 8


def test_a_foreign_step_holds_inputs_and_outputs_and_shares_nothing():
    found = plan(chain(1, 2, 3, 1, inplace=True, recompute_in_forward=True), "live")
    assert (found.pool_bytes, found.step_of_peak, found.buffer_of) == (20, 2, ())


def test_a_wrong_source_is_refused():
    graph = chain(1, 1)
    schedule = expand(graph, {})
    wrong = replace(schedule, steps=(schedule.steps[0], replace(schedule.steps[1], sources=(1,))))
    with pytest.raises(ValueError, match="does not make it"):
        build_program(graph, wrong)


# --------------------------------------------------------------------------------- stock
@pytest.mark.parametrize("second, match_range, shared", [
    (16, 16, True), (19, 16, True), (20, 16, False), (20, 32, True), (1, 0, False), (2, 1, False),
    (1, 1, True)])
def test_stock_shares_within_the_match_range(second, match_range, shared):
    blocks = blocks_of((0, 0, 1), (1, 1, second))
    found = packing.stock(blocks, StorageModel("stock", match_range), 4)
    assert found.buffer_of == ((0, 0) if shared else (0, 1))


def test_stock_takes_the_larger_free_buffer_first_and_grows_the_smaller_one_else():
    blocks = blocks_of((0, 0, 2), (0, 0, 8), (1, 2, 4), (2, 2, 4))
    found = packing.stock(blocks, StorageModel("stock"), 4)
    assert found.buffer_of == (0, 1, 1, 0)
    assert found.buffer_bytes == (16, 32)


def test_searching_the_match_range_takes_the_smallest_pool():
    blocks = blocks_of((0, 0, 8), (1, 4, 1), (2, 4, 8))
    wide = packing.stock(blocks, StorageModel("stock"), 4)
    searched = packing.stock(blocks, StorageModel("stock", search_match_range=True), 4)
    assert (wide.printed_bytes, searched.printed_bytes) == (64, 36)


# ---------------------------------------------------------------------------------- best
def test_best_equals_the_bound_where_stock_does_not():
    # Stock puts the small block into the large buffer and needs another large one.
    blocks = blocks_of((0, 0, 8), (1, 4, 1), (2, 4, 8))
    assert packing.stock(blocks, StorageModel(), 4).pool_bytes == 64
    assert packing.best(blocks, StorageModel(), 4).pool_bytes == 36
    assert packing.lower_bound(blocks, 4) == 36


def exhaustive(blocks, rounding):
    """The smallest pool of all assignments."""
    least = [sum(packing.round_up(b.bytes, rounding) for b in blocks.blocks) + 1]
    buffers = []

    def place(index):
        total = sum(max(packing.round_up(b.bytes, rounding) for b in buffer)
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
    best = plan_storage(graph, schedule, "best", native=False)
    stock = plan_storage(graph, schedule, "stock", native=False)
    quick = plan_storage(graph, schedule, "quick", native=False)
    assert best.peak_live_bytes <= best.lower_bound_bytes <= best.pool_bytes <= stock.pool_bytes
    assert best.blocks == stock.blocks
    assert best.lower_bound_bytes <= quick.pool_bytes
    for found in (best, stock, quick):
        for i, one in enumerate(found.blocks.blocks):
            assert one.bytes <= found.buffer_bytes[found.buffer_of[i]]
            for j, other in enumerate(found.blocks.blocks[:i]):
                if found.buffer_of[i] == found.buffer_of[j]:
                    assert other.end < one.start or one.end < other.start
                    assert (one.device, one.pool) == (other.device, other.pool)


def test_a_variant_is_planned_like_the_graph_that_it_makes():
    used = 0
    for seed in range(60):
        rng = random.Random(seed)
        graph = strategies.variants(rng, strategies.training_graph(rng, 8))
        schedule = strategies.schedule_with_variants(rng, graph)
        used += len(schedule.variants)
        in_use = graph_in_use(graph, schedule)
        for model in ("best", "stock", "live"):
            found = plan_storage(graph, schedule, model)
            same = plan_storage(in_use, replace(schedule, variants=()), model)
            assert (found.blocks, found.buffer_of) == (same.blocks, same.buffer_of)
    assert used > 50


def test_best_is_at_the_bound_for_most_graphs():
    at_bound, excess = 0, 0.0
    for seed in range(60):
        rng = random.Random(seed)
        graph = strategies.training_graph(rng, 40)
        found = plan_storage(graph, expand(graph, strategies.decisions(rng, graph)), "best")
        at_bound += found.pool_bytes == found.lower_bound_bytes
        excess += found.pool_bytes / found.lower_bound_bytes - 1
    assert at_bound >= 30
    assert excess / 60 < 0.01


# --------------------------------------------------------------------------------- arena
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


def test_ops_that_became_part_of_others_change_no_arena():
    """MXNet counts steps without them; the order in which blocks are placed depends on lengths."""
    idle = ProgramStep(0, 0, (), (), (), (), 0, 0, False)
    for seed in range(40):
        rng = random.Random(seed)
        graph = strategies.training_graph(rng, 25)
        program = build_program(graph, expand(graph, strategies.decisions(rng, graph)))
        program = replace(program, bytes=tuple(1024 * b for b in program.bytes))
        steps, running = [], []
        for step in program.steps:
            steps += [idle] * rng.choice((0, 0, 1, 7))
            running.append(len(steps))
            steps.append(step)
        longer = replace(program, steps=tuple(steps))
        for model in ("arena", "best", "stock"):
            found = plan_program(longer, StorageModel(model))
            same = plan_program(program, StorageModel(model))
            assert (found.pool_bytes, found.offset_of) == (same.pool_bytes, same.offset_of)
            assert found.peak_live_bytes == same.peak_live_bytes
            assert found.step_of_peak == running[same.step_of_peak]
            assert [(b.start, b.end) for b in found.blocks.blocks] == [
                (running[b.start], [*running, len(steps)][b.end]) for b in same.blocks.blocks]


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


# ------------------------------------------------------------------------- Python and C++
def compare(core, seed, largest):
    rng = random.Random(seed)
    graph = strategies.training_graph(
        rng, rng.randint(1, largest), devices=rng.choice((1, 1, 2)),
        pools=rng.choice(("executor", "executor", "cached_op")), unasked=True)
    schedule = expand(graph, strategies.decisions(rng, graph))
    foreign = strategies.foreign_graph(rng, rng.randint(1, largest))
    varied = strategies.variants(rng, graph)
    for program in (build_program(graph, schedule),
                    build_program(varied, strategies.schedule_with_variants(rng, varied)),
                    build_program(foreign, strategies.foreign_schedule(rng, foreign))):
        for assignment in ("stock", "quick", "best", "arena", "live"):
            model = StorageModel(assignment, rng.choice((16, 16, 0, 1, 4)), rng.random() < 0.3,
                                 rng.choice((10, 40)))
            assert plan_program(program, model, native=False) == storage_native.plan(
                core, program, model), (seed, assignment)


def test_cpp_equals_python(storage_core):  # noqa: F811
    for seed in range(100):
        compare(storage_core, seed, 20)


def test_cpp_equals_python_where_no_block_has_bytes(storage_core):  # noqa: F811
    compare(storage_core, 3342, 40)


@pytest.mark.slow
def test_cpp_equals_python_on_thousands(storage_core):  # noqa: F811
    for seed in range(1000, 5000):
        compare(storage_core, seed, 40)
