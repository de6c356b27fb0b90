"""Blocks: which values share memory, and from which step to which they are alive."""
from __future__ import annotations

from dataclasses import replace

import pytest

from memonger.graph.schedule import expand
from memonger.graph.types import DTYPES, Graph, Inplace, Op, Tensor
from memonger.memory.liveness import Block, build_program
from memonger.memory.storage import plan_storage


def chain(*sizes, inplace=False, outputs=None, dtype="float32", **options):
    """a0 -> a1 -> ..., each op reading the one before."""
    tensors = tuple(Tensor("a%d" % i, 4 * n, i, shape=(n,), dtype=dtype)
                    for i, n in enumerate(sizes))
    pairs = (Inplace(0, 0),) if inplace else ()
    ops = tuple(Op.of("op%d" % i, "Op", (i - 1,) if i else (), (i,), inplace=pairs if i else ())
                for i in range(len(sizes)))
    return Graph(tensors, ops, (len(sizes) - 1,) if outputs is None else outputs, **options)


def plan(graph, model="stock"):
    return plan_storage(graph, expand(graph, {}), model)


def test_a_chain_without_inplace_needs_two_buffers():
    found = plan(chain(1, 1, 1, 1))
    assert [(b.start, b.end) for b in found.blocks.blocks] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert found.buffer_of == (0, 1, 0, 1)
    assert (found.pool_bytes, found.peak_live_bytes, found.step_of_peak) == (8, 8, 1)


def test_inplace_makes_one_block():
    found = plan(chain(1, 1, 1, inplace=True))
    assert [(b.start, b.end) for b in found.blocks.blocks] == [(0, 3)]
    assert found.blocks.inplace_index == (-1, 0, 0)
    assert found.blocks.block_of == (0, 0, 0) and found.buffer_of == (0,)


def test_a_second_reader_forbids_inplace_but_not_identity():
    tensors = tuple(Tensor(n, 4, i, shape=(1,)) for i, n in enumerate("abc"))
    ops = [Op.of("a", "Op", (), (0,)), Op.of("b", "Op", (0,), (1,), inplace=(Inplace(0, 0),)),
           Op.of("c", "Op", (0, 1), (2,))]
    assert len(plan(Graph(tensors, tuple(ops), (2,))).blocks.blocks) == 3
    ops[1] = ops[1].changed(inplace=(Inplace(0, 0, identity=True),))
    assert len(plan(Graph(tensors, tuple(ops), (2,))).blocks.blocks) == 2


def test_inplace_needs_equal_elements_and_item_size():
    for dtype, shape, blocks in (("int32", (1,), 1), ("float16", (1,), 2), ("float32", (2,), 2)):
        tensors = (Tensor("a", 4, 0, shape=(1,)), Tensor("b", 4, 1, shape=shape, dtype=dtype))
        ops = (Op.of("a", "Op", (), (0,)), Op.of("b", "Op", (0,), (1,), inplace=(Inplace(0, 0),)))
        assert len(plan(Graph(tensors, ops, (1,))).blocks.blocks) == blocks


def test_an_op_that_ignores_all_inputs_is_not_in_place():
    tensors = (Tensor("a", 4, 0, shape=(1,)), Tensor("b", 4, 1, shape=(1,)))
    ops = (Op.of("a", "Op", (), (0,)),
           Op.of("b", "zeros_like", (0,), (1,), ignored_inputs=(0,), inplace=(Inplace(0, 0),)))
    found = plan(Graph(tensors, ops, (1,)))
    assert found.blocks.block_of == (0, 1)
    assert found.blocks.inplace_index == (-2, -1)  # nobody reads a


def test_an_unread_output_is_freed_at_its_own_step():
    found = plan(chain(1, 5, 5, outputs=(0,)))
    assert found.blocks.blocks[2] == Block(2, 2, 20, 5)
    assert found.blocks.blocks[0].end == 3


def test_outputs_of_one_op_are_requested_largest_and_last_first():
    tensors = tuple(Tensor("t%d" % i, 4 * n, 0, shape=(n,)) for i, n in enumerate((1, 3, 3)))
    graph = Graph(tensors, (Op.of("split", "Op", (), (0, 1, 2)),), (0, 1, 2))
    assert plan(graph).blocks.block_of == (2, 1, 0)


def test_external_arrays_have_no_block():
    graph = chain(1, 1, inplace=True)
    graph = replace(graph, tensors=(graph.tensors[0], replace(graph.tensors[1], space="outside")))
    found = plan(graph)
    assert found.blocks.block_of == (0, -1)
    assert found.pool_bytes == 4


def test_a_grad_add_in_place_leaves_the_right_buffer_empty():
    tensors = tuple(Tensor(n, 400, i, shape=(100,)) for i, n in enumerate("lrs"))
    ops = (Op.of("l", "Op", (), (0,)), Op.of("r", "Op", (), (1,)),
           Op.of("s", "_grad_add", (0, 1), (2,), True, inplace=(Inplace(0, 0),),
                 adds_into_first=True))
    found = plan(Graph(tensors, ops, (2,)))
    assert (found.pool_bytes, found.printed_bytes) == (400, 800)
    plain = ops[2].changed(adds_into_first=False)
    assert plan(Graph(tensors, (*ops[:2], plain), (2,))).pool_bytes == 800


def test_the_executor_rounds_buffers_up_to_four_bytes():
    graph = Graph((Tensor("mask", 5, 0, shape=(5,), dtype="uint8"),), (Op.of("m", "Op", (), (0,)),),
                  (0,))
    found = plan(graph)
    assert (found.pool_bytes, found.peak_live_bytes, found.printed_bytes) == (8, 5, 20)
    assert plan(replace(graph, pools="cached_op")).pool_bytes == 5


def test_a_cached_op_keeps_what_backward_reads_and_shares_nothing():
    tensors = tuple(Tensor(n, 4, i, shape=(1,)) for i, n in enumerate("abcd"))
    ops = (Op.of("a", "Op", (), (0,)), Op.of("b", "Op", (0,), (1,)),
           Op.of("c", "Op", (1,), (2,), True, inplace=(Inplace(0, 0),)),
           Op.of("d", "Op", (2,), (3,), True))
    found = plan(Graph(tensors, ops, (3,), pools="cached_op"))
    assert [(b.start, b.end, b.pool) for b in found.blocks.blocks] == [
        (0, 1, 0), (1, 4, 0), (2, 3, 1), (3, 4, 1)]
    assert found.pool_bytes == 16
    assert plan(Graph(tensors, ops, (3,))).pool_bytes == 8


def test_a_second_run_of_an_output_lies_in_the_pool_of_a_cached_op():
    """The caller's array is written by the first run."""
    tensors = (Tensor("y", 8, 0, "output", "outside", (2,)),
               Tensor("dx", 4, 1, "gradient", "outside"))
    ops = (Op.of("y", "Op", (), (0,)), Op.of("dy", "Op", (0,), (1,), True, 0))
    graph = Graph(tensors, ops, (0, 1), pools="cached_op")
    again = plan_storage(graph, expand(graph, {0: {}}), "best")
    assert [block.pool for block in again.blocks.blocks] == [1]
    assert (plan(graph).pool_bytes, again.pool_bytes) == (0, 8)


def test_a_step_holds_inputs_and_outputs_where_nothing_works_in_place():
    found = plan(chain(1, 2, 3, 1, pools="units"), "live")
    assert (found.pool_bytes, found.step_of_peak, found.buffer_of) == (20, 2, ())


def test_a_wrong_source_is_refused():
    graph = chain(1, 1)
    schedule = expand(graph, {})
    wrong = replace(schedule, steps=(schedule.steps[0], replace(schedule.steps[1], sources=(1,))))
    with pytest.raises(ValueError, match="does not make it"):
        build_program(graph, wrong)


def one_after_the_other(*dtypes):
    tensors = tuple(Tensor("t%d" % i, 8 * DTYPES[dtype], i, shape=(8,), dtype=dtype)
                    for i, dtype in enumerate(dtypes))
    ops = tuple(Op.of("op%d" % i, "Op", (i - 1,) if i else (), (i,),
                      inplace=(Inplace(0, 0),) if i else ()) for i in range(len(dtypes)))
    return Graph(tensors, ops, (len(dtypes) - 1,))


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "float8_e4m3fn", "bfloat16"])
def test_every_dtype_has_its_bytes_and_shares_with_its_own(dtype):
    graph = one_after_the_other(dtype, dtype)
    graph.check()
    assert plan(graph).pool_bytes == 8 * DTYPES[dtype]


def test_dtypes_share_memory_where_their_items_have_equal_bytes():
    assert plan(one_after_the_other("complex64", "float64")).pool_bytes == 64
    assert plan(one_after_the_other("complex64", "float32")).blocks.block_of == (0, 1)
