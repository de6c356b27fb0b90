"""Arithmetic and traffic of operators in exact numbers; the roofline model and profiles."""
from __future__ import annotations

import json

import pytest
import strategies
from hypothesis import given

from memonger.graph.types import Graph, Inplace, Op, Tensor
from memonger.mx.costs.models import (
    DEVICES,
    Device,
    Profile,
    Roofline,
    best_known,
    distinct_ops,
    is_view,
    op_signature,
    roofline,
    signature,
    wanted_outputs,
)
from memonger.mx.costs.work import TensorType, work
from memonger.util.errors import InputError

# 512 x 512 float32 is exactly 1 MiB, and its square takes 2 * 512**3 operations.
SQUARE, MIB = TensorType((512, 512)), 2**20
DATA, WEIGHT, BIAS = TensorType((2, 8, 6, 6)), TensorType((16, 8, 3, 3)), TensorType((16,))
OUT = TensorType((2, 16, 4, 4))
CONV_FLOPS = 2 * OUT.elements * 8 * 3 * 3


def test_a_product_of_matrices():
    assert work("dot", {}, [SQUARE, SQUARE], [SQUARE]) == (2 * 512**3, 3 * MIB, True, 0, 1)
    assert work("FullyConnected", {}, [SQUARE, SQUARE], [SQUARE]) == (2 * 512**3, 3 * MIB, True,
                                                                      0, 1)
    wide = [TensorType((4, 6)), TensorType((6, 10))], [TensorType((4, 10))]
    assert work("dot", {}, *wide).flops == pytest.approx(2 * 4 * 6 * 10)
    batch = [TensorType((3, 4, 6)), TensorType((3, 6, 10))], [TensorType((3, 4, 10))]
    assert work("batch_dot", {}, *batch).flops == pytest.approx(2 * 3 * 4 * 6 * 10)


def test_a_convolution_and_each_of_its_gradients():
    assert work("Convolution", {}, [DATA, WEIGHT], [OUT]).flops == CONV_FLOPS
    assert work("Convolution", {}, [DATA, WEIGHT, BIAS], [OUT]).flops == CONV_FLOPS + OUT.elements
    inputs, outputs = [OUT, DATA, WEIGHT], [DATA, WEIGHT, BIAS]

    def backward(*wanted):
        return work("_backward_Convolution", {}, inputs, outputs, wanted)
    assert backward(True, True, False).flops == 2 * CONV_FLOPS
    assert backward(False, True, False).flops == CONV_FLOPS
    assert backward(True, False, False).moved_bytes == 2 * 0 + sum(
        t.size_bytes for t in (OUT, WEIGHT, DATA))
    assert backward(False, False, True).flops == OUT.elements
    assert backward(False, False, False) == (0, 0, True, 0, 1)


def test_a_fused_operator_takes_the_time_of_its_convolution_and_of_its_passes():
    """On a device whose speeds were measured; elsewhere it has one price."""
    fused, channel = "memonger_bn_relu_convolution", TensorType((8,))
    forward = fused, {}, [DATA, *[channel] * 4, WEIGHT], [OUT, channel, channel, DATA]
    backward = ("_backward_" + fused, {}, [OUT, DATA, *[channel] * 6, WEIGHT],
                [DATA, channel, channel, WEIGHT, DATA])
    cpu = Roofline(DEVICES["cpu"])
    for op, conv in (
            (forward, ("Convolution", {}, [DATA, WEIGHT], [OUT])),
            (backward, ("_backward_Convolution", {}, [OUT, DATA, WEIGHT], [DATA, WEIGHT]))):
        factors = {conv[0]: 3.0, op[0]: 5.0}
        inside_s, rest_s = Roofline(cpu.device, factors).parts_s(*op)
        assert inside_s == pytest.approx(3 * cpu.time_s(*conv)) and rest_s > 0
        assert Roofline(cpu.device, factors).time_s(*op) == pytest.approx(inside_s + 5 * rest_s)
        assert work(*op).without(work(*conv)).flops < work(*conv).flops
        assert cpu.parts_s(*op) == (0.0, cpu.time_s(*op))


def test_the_cpu_preset_prices_ops_as_they_were_measured():
    """Frugal operators are slower there than MXNet's own, which MKLDNN runs."""
    cpu = roofline("cpu")
    for own, kind in (("LeakyReLU", "memonger_mask_leaky_relu"), ("relu", "memonger_mask_relu")):
        large = [TensorType((8, 64, 56, 56))]
        assert cpu.time_s(kind, {}, large, large) > cpu.time_s(own, {}, large, large)
    assert roofline("v100").factors == {} and cpu.source == "roofline: cpu"


def test_parts_of_a_batch_are_calls_of_their_own():
    """As many as the operator makes: ``Convolver::Step``."""
    for attributes, parts in (({}, 1), ({"micro_batch": "1"}, 2), ({"micro_batch": "5"}, 1),
                              ({"micro_batch": "1", "micro_batch_mb": "1"}, 1)):
        small = [TensorType((8,))] * 4
        fused = work("memonger_bn_relu_convolution", attributes, [DATA, *small, WEIGHT], [OUT])
        assert fused.calls == 1 + 2 * parts
        back = work("_backward_memonger_bn_relu_convolution", attributes,
                    [OUT, DATA, *small, *small[:2], WEIGHT], [DATA, *small[:2], WEIGHT])
        assert back.calls == 1 + 3 * parts
    large = TensorType((16, 8, 128, 128))  # 8 MB, and as much behind it
    call = ("memonger_bn_relu_convolution", {"micro_batch": "4", "micro_batch_mb": "2"},
            [large, *[TensorType((8,))] * 4, WEIGHT], [large])
    assert work(*call).calls == 1 + 2 * 4
    a100 = roofline("a100")
    gain_s = a100.time_s(*call) - a100.time_s(call[0], {}, *call[2:])
    assert gain_s == pytest.approx(2 * 3 * a100.device.launch_s)


def test_groups_and_transposed_convolutions():
    depthwise = TensorType((8, 1, 3, 3))
    out = TensorType((2, 8, 4, 4))
    assert work("Convolution", {}, [DATA, depthwise], [out]).flops == 2 * out.elements * 9
    up = TensorType((8, 5, 2, 2))
    assert work("Deconvolution", {}, [DATA, up], [TensorType((2, 5, 12, 12))]).flops == \
        2 * DATA.elements * 5 * 4


def test_a_recurrent_layer_uses_each_weight_once_a_step():
    data, weights = TensorType((7, 3, 5)), TensorType((1000,))
    state, out = TensorType((1, 3, 4)), TensorType((7, 3, 4))
    assert work("RNN", {}, [data, weights, state], [out]).flops == 2 * 7 * 3 * 1000
    assert work("_backward_RNN", {}, [data, weights, state, out, out], [data, weights]).flops == \
        4 * 7 * 3 * 1000


def test_attention_products():
    # length 6, batch 2, 3 heads of size 4
    mixed, square = TensorType((6, 2, 3 * 3 * 4)), TensorType((6, 6, 6))
    scores = work("_contrib_interleaved_matmul_selfatt_qk", {"heads": "3"}, [mixed], [square])
    values = work("_contrib_interleaved_matmul_selfatt_valatt", {"heads": "3"}, [mixed, square],
                  [TensorType((6, 2, 12))])
    assert values.flops == 2 * 6 * 6 * 6 * 4
    assert scores.flops == values.flops


def test_normalisations_make_two_passes():
    small = TensorType((512,))
    forward = work("BatchNorm", {}, [SQUARE, small, small], [SQUARE, small, small])
    assert (forward.moved_bytes, forward.again_bytes) == (2 * MIB + 4 * small.size_bytes, MIB)
    backward = work("_backward_BatchNorm", {}, [SQUARE, SQUARE, small], [SQUARE, small])
    assert (backward.moved_bytes, backward.again_bytes) == (
        3 * MIB + 2 * small.size_bytes, 2 * MIB)
    tensors = [SQUARE, small, small], [SQUARE, small, small]
    twice = Roofline(Device("unit", 1e30, MIB)).time_s("BatchNorm", {}, *tensors)
    once = Roofline(Device("unit", 1e30, MIB, second_passes=False)).time_s(
        "BatchNorm", {}, *tensors)
    assert twice == once + 1


def test_only_picked_rows_are_read():
    index, table, out = TensorType((4,), "int32"), TensorType((9999, 8)), TensorType((4, 8))
    assert work("Embedding", {}, [index, table], [out]).moved_bytes == 2 * out.size_bytes + 16
    assert work("slice_axis", {}, [table], [out]).moved_bytes == 2 * out.size_bytes


def test_pooling_reads_windows():
    found = work("Pooling", {"kernel": "(2, 2)"}, [TensorType((1, 1, 4, 4))],
                 [TensorType((1, 1, 2, 2))])
    assert found == (16, 80, False, 0, 1)
    everything = work("Pooling", {"kernel": "(1, 1)", "global_pool": "True"},
                      [TensorType((1, 1, 4, 4))], [TensorType((1, 1, 1, 1))])
    assert everything.flops == 16


def test_an_unknown_operator_is_bound_by_memory():
    assert work("somebody_elses", {}, [SQUARE], [SQUARE, SQUARE], (True, False)) == (
        SQUARE.elements, 2 * MIB, False, 0, 1)
    assert work("Convolution", {}, [SQUARE], [SQUARE]).flops == SQUARE.elements
    assert work("_zeros", {}, [], [SQUARE]).moved_bytes == MIB
    assert work("nothing", {}, [], []) == (0, 0, False, 0, 1)
    assert work("exp", {}, [SQUARE], [SQUARE]).flops == 8 * SQUARE.elements


def test_the_longer_of_arithmetic_and_traffic():
    device = Device("unit", 100.0, 10.0, launch_s=1.0, half_flops_per_s=400.0)
    assert device.time_s(1000, 10) == 11.0
    assert device.time_s(10, 1000) == 101.0
    assert device.time_s(1000, 0, "float16", is_matrix=True) == 3.5
    assert device.time_s(1000, 0, "float16") == 11.0
    assert device.time_s(1000, 0, "float64") == 21.0


def test_presets():
    reference = DEVICES["reference"]
    assert (reference.flops_per_s, reference.bytes_per_s, reference.launch_s) == (10e12, 6e11, 0)
    assert reference.compute_share == reference.memory_share == 1
    assert roofline("v100").source == "roofline: v100"
    assert {"p100", "v100", "t4", "a100", "cpu"} <= set(DEVICES)
    with pytest.raises(InputError, match="there are reference, p100"):
        roofline("abacus")


def net():
    """data -> relu -> Reshape -> relu's gradient, whose second output nobody reads."""
    tensors = (Tensor("data", MIB, -1, "input", "outside", (512, 512)),
               *(Tensor("t%d" % i, MIB, p, shape=s) for i, (p, s) in enumerate((
                   (0, (512, 512)), (1, (2**18,)), (2, (512, 512)), (2, (512, 512))))))
    same = (Inplace(0, 0, True),)
    ops = (Op.of("a", "relu", (0,), (1,)), Op.of("r", "Reshape", (1,), (2,), inplace=same),
           Op.of("b", "_backward_relu", (2, 1), (3, 4), True, 0, ignored_inputs=(1,),
                 workspace_bytes=7))
    return Graph(tensors, ops, (3,))


def test_op_times_of_a_graph():
    graph = net()
    unit = Roofline(Device("unit", 1e30, MIB))
    found = unit.op_times(graph)
    assert found.times_s == (2.0, 0.0, 2.0)  # a view is free; one input ignored, one not wanted
    assert wanted_outputs(graph, 2) == (True, False)
    assert [is_view(graph, op) for op in graph.ops] == [False, True, False]


def test_a_profile_and_its_estimates():
    graph = net()
    attributes = ({"__mirror_stage__": "True"}, {}, {})
    unit = Roofline(Device("unit", 1e30, MIB))
    times = {op_signature(graph, 0, attributes): 6.0}
    found = Profile("here", times, unit).op_times(graph, attributes)
    assert found.times_s == (6.0, 0.0, 6.0)  # estimated: 2.0, and measured is 3 times analytic
    assert found.estimated == (2,)
    assert Profile("here", {}, unit).op_times(graph).times_s == (2.0, 0.0, 2.0)
    assert Profile("here", times, unit).source == "profile: here"


def test_a_stored_profile_is_used_when_it_covers_the_network():
    graph = net()
    unit = Roofline(Device("unit", 1e30, MIB))
    whole = Profile("here", {op_signature(graph, i, ()): 1.0 for i in (0, 2)}, unit)
    half = Profile("here", {op_signature(graph, 0, ()): 1.0}, unit)
    assert best_known(graph, (), whole, unit) is whole
    assert best_known(graph, (), half, unit) is unit
    assert best_known(graph, (), None, unit) is unit


def test_signatures_ignore_hints_and_tell_all_else_apart():
    base = signature("relu", {"a": "1", "__mirror_stage__": "True"}, [SQUARE], [SQUARE])
    assert base == signature("relu", {"a": "1"}, [SQUARE], [SQUARE])
    assert json.loads(base)[0] == "relu"
    others = [signature("tanh", {"a": "1"}, [SQUARE], [SQUARE]),
              signature("relu", {"a": "2"}, [SQUARE], [SQUARE]),
              signature("relu", {"a": "1"}, [TensorType((512, 512), "float16")], [SQUARE]),
              signature("relu", {"a": "1"}, [SQUARE], [SQUARE], (False,))]
    assert len({base, *others}) == 5


def test_equal_ops_are_measured_once():
    graph = net()
    twice = Graph(graph.tensors, (*graph.ops, Op.of("c", "relu", (0,), ())), (3,))
    assert list(distinct_ops(graph, ()).values()) == [0, 2]
    assert list(distinct_ops(twice, ()).values()) == [0, 2, 3]


@given(strategies.graphs())
def test_every_op_has_a_finite_time(graph):
    for device in DEVICES:
        found = roofline(device).op_times(graph)
        assert len(found.times_s) == len(graph.ops)
        assert all(0 <= time < 1 for time in found.times_s)
