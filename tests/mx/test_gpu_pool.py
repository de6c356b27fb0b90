"""How MXNet's pools round, and what a step takes of a GPU besides its arrays."""
from __future__ import annotations

from typing import Tuple

import pytest

from memonger.graph.schedule import expand
from memonger.graph.types import Graph, Op, Tensor
from memonger.memory.storage import plan_storage
from memonger.mx.memory.gpu_pool import BoundStep, Device, workspaces
from memonger.util.errors import InputError

MIB = 1 << 20


@pytest.mark.parametrize("device, sizes", [
    (Device(), {0: 0, 1: 4096, 4097: 8192, 2 * MIB: 2 * MIB, 2 * MIB + 1: 4 * MIB}),
    (Device(page_bytes=32, large_bytes=1000), {1: 512, 1001: 2048}),
    (Device(pool_type="Round"), {1: 4096, 4097: 8192, 3 * MIB: 4 * MIB, 17 * MIB: 32 * MIB,
                                 33 * MIB: 48 * MIB}),
    (Device(pool_type="Round", linear_cutoff=20), {3 * MIB + 1: 4 * MIB, 5 * MIB: 5 * MIB}),
    (Device(pool_type="Unpooled"), {1: 512, 4097: 4608})])
def test_rounding(device, sizes):
    assert {size: device.rounded(size) for size in sizes} == sizes


@pytest.mark.parametrize("pool_type", ["Naive", "Round", "Unpooled"])
@pytest.mark.parametrize("size", [0, 511, 4096, 5 * MIB, 100 * MIB + 1])
def test_the_largest_array_within_a_size(pool_type, size):
    device = Device(pool_type=pool_type)
    most = device.largest_within(size)
    assert device.rounded(most) <= size < device.rounded(most + 1)


def test_an_unknown_pool_is_refused():
    with pytest.raises(InputError, match="MXNET_GPU_MEM_POOL_TYPE=Best"):
        Device(pool_type="Best")


def test_states_are_those_that_ops_ask_for():
    device = Device(dropout_state_bytes=100)
    assert device.random_states_bytes([(1,), (3,), ()]) == 0
    assert device.random_states_bytes([(2,), (2,)]) == 4 * 2 * MIB
    assert device.dropout_states_bytes([(1,), (2,), (3,)]) == 4096
    assert device.dropout_states_bytes([(3,)] * 6) == 4 * 4096


# ---------------------------------------------------------------------- tuning
def convolutions(storage: str, resources: Tuple[int, ...] = (1,),
                 **attributes: str) -> BoundStep:
    """Two convolutions of 8 MiB in a row; the weight has 4 MiB."""
    tensors = [Tensor("data", 8 * MIB, -1, "input", "outside"),
               Tensor("w", 4 * MIB, -1, "parameter", "outside")]
    tensors += [Tensor("conv%d" % i, 8 * MIB, i) for i in range(3)]
    ops = [Op.of("conv%d" % i, "Convolution", ((0, 2, 3)[i], 1), (2 + i,)) for i in range(3)]
    graph = Graph(tuple(tensors), tuple(ops), (4,))
    return BoundStep(graph, {op.name: {"layout": op.name, **attributes} for op in ops},
                     {"conv0": (1,), "conv1": (1,), "conv2": resources},
                     plan_storage(graph, expand(graph, {}), storage))


def test_tuning_comes_on_top_of_what_is_there_by_then():
    """Buffers come with their first use, the last convolution's with all of them."""
    for storage in ("stock", "arena"):
        step = convolutions(storage)
        extra = step.extra_bytes(Device(), [8 * MIB, 4 * MIB])
        assert extra == {"rounding": 0, "random_states": 0, "autotuning": 20 * MIB}


def test_dropouts_state_comes_with_its_first_use():
    extra = convolutions("stock", (3,)).extra_bytes(Device(dropout_state_bytes=6 * MIB), [])
    assert extra == {"rounding": 0, "random_states": 6 * MIB, "autotuning": 14 * MIB}


def test_tuning_is_switched_off_where_mxnet_does():
    quiet = Device(autotunes=False)
    arrays = [8 * MIB]
    assert convolutions("best").extra_bytes(quiet, arrays)["autotuning"] == 0
    assert convolutions("best", cudnn_off="True").extra_bytes(Device(), arrays)["autotuning"] == 0
    assert convolutions("best", cudnn_tune="off").extra_bytes(Device(), arrays)["autotuning"] == 0
    asked = convolutions("best", cudnn_tune="fastest")
    assert asked.extra_bytes(quiet, arrays)["autotuning"] == 20 * MIB


def test_a_pool_within_a_budget_leaves_room_for_rounding():
    step = convolutions("best")
    assert step.pool_within(Device(), 31 * MIB) == 31 * MIB
    assert step.pool_within(Device(large_bytes=6 * MIB), 31 * MIB) == \
        31 * MIB - 4 * MIB * len(step.storage.buffer_bytes)


def test_every_convolution_asks_for_temporary_space():
    assert workspaces(Device(), convolutions("best").graph) == (4, 4, 4)


# ---------------------------------------------------------------------- CachedOp
def test_each_buffer_of_a_cached_op_counts_once():
    """Whether MXNet gives one back in time for the next op is chance."""
    names = ("data", "a", "d", "out", "b", "c")
    tensors = [Tensor(name, 3 * MIB, i - 1,
                      {"data": "input", "out": "output"}.get(name, "activation"),
                      "outside" if i in (0, 3) else "device")
               for i, name in enumerate(names)]
    ops = [Op.of("f0", "f", (0,), (1,)), Op.of("f1", "f", (1,), (2,)), Op.of("f2", "f", (2,), (3,)),
           Op.of("b0", "b", (3,), (4,), is_backward=True),
           Op.of("b1", "b", (4, 3), (5,), is_backward=True)]
    graph = Graph(tuple(tensors), tuple(ops), (3,), pools="cached_op")
    step = BoundStep(graph, {op.name: {} for op in ops}, {op.name: () for op in ops},
                     plan_storage(graph, expand(graph, {}), "stock"))
    assert step.storage.buffer_bytes == (3 * MIB,) * 4  # a and d would serve for b and c
    extra = step.extra_bytes(Device(), [])
    # With the output and the gradient for it, each takes a megabyte more.
    assert extra == {"rounding": 6 * MIB, "random_states": 0, "autotuning": 0}
