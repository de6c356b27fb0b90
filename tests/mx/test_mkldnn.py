"""Copies that MKLDNN's operators make: how many bytes, and where they are counted."""
from __future__ import annotations

import mxnet as mx
import pytest
from needed import needs_plugin

import memonger
from memonger.mx.capture.record import read
from memonger.mx.costs.models import DEVICES, Roofline
from memonger.mx.memory.mkldnn import mkldnn_workspaces

pytestmark = needs_plugin
SHAPES = {"data": (4, 3, 16, 16)}
#: A map of 8 channels, and the two weights.
MAP, FIRST, SECOND = 4 * 8 * 16 * 16 * 4, 8 * 3 * 9 * 4, 8 * 8 * 9 * 4


def convolution(data, name, **more):
    return mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=8, no_bias=True,
                              name=name, **more)


def network(middle=mx.sym.relu, **more):
    value = middle(convolution(mx.sym.var("data"), "first", **more))
    return mx.sym.LinearRegressionOutput(convolution(value, "second", **more), name="out")


def spaces(symbol, planned, grad_req="write"):
    found = read(symbol, SHAPES, grad_req=grad_req)
    ops = [op.name for op in found.graph.ops]
    sizes = mkldnn_workspaces(found.graph, found.attributes, planned, found.added)
    return {name: size for name, size in zip(ops, sizes) if size}


def test_convolutions_turn_what_comes_in_another_layout():
    """The head's gradient does; in a plan anything may. Both gradients of `first` want theirs."""
    alone = spaces(network(), planned=False)
    assert alone == {"first": FIRST, "first_backward": 2 * FIRST + MAP, "second": SECOND,
                     "second_backward": 2 * SECOND + MAP}
    planned = spaces(network(), planned=True)
    assert planned["second"] == SECOND + MAP
    assert planned["second_backward"] == 2 * (SECOND + MAP)
    assert planned["first_backward"] == 2 * (FIRST + MAP)
    fixed = spaces(network(), True, {"data": "null", "first_weight": "write",
                                     "second_weight": "write", "out_label": "null"})
    assert fixed["first_backward"] == 2 * FIRST + MAP


def test_gradients_of_activations_are_made_beside_what_they_read():
    def act(value):
        return mx.sym.Activation(value, act_type="tanh", name="act")
    assert spaces(network(act), planned=False)["act_backward"] == MAP
    assert spaces(network(act), planned=True)["act_backward"] == 2 * MAP


def test_gradients_that_are_added_to_are_made_beside_their_arrays():
    added = spaces(network(), False, {"data": "null", "first_weight": "add",
                                      "second_weight": "write", "out_label": "null"})
    assert added == {**spaces(network(), False), "first_backward": 3 * FIRST}
    dense = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=7, name="dense")
    wanted = 4 * (3 * 16 * 16 * (7 + 4) + 7)
    assert spaces(mx.sym.MakeLoss(dense), False, "add")["dense_backward"] == wanted
    assert "dense_backward" not in spaces(mx.sym.MakeLoss(dense), False)


def test_a_dense_layers_gradient_may_take_the_memory_of_its_data():
    flat = mx.sym.Flatten(mx.sym.var("data"))
    dense = mx.sym.MakeLoss(mx.sym.FullyConnected(flat, num_hidden=7, name="dense"))
    assert spaces(dense, False)["dense_backward"] == 4 * 4 * 3 * 16 * 16


def test_operators_that_are_not_mkldnns_have_a_space_of_their_own():
    norm = mx.sym.LayerNorm(mx.sym.var("data"), name="norm")
    dense = mx.sym.FullyConnected(norm, num_hidden=8, flatten=False, name="dense")
    data_bytes, means_bytes = 4 * 3 * 16 * 16 * 4, 4 * 3 * 16 * 4
    found = spaces(mx.sym.MakeLoss(dense), planned=True)
    assert found["norm_backward"] == 2 * data_bytes + means_bytes
    assert found["dense_backward"] == found["norm_backward"] + data_bytes


def test_in_plans_other_operators_copy_what_they_read():
    def clip(value):
        return mx.sym.clip(value, a_min=0, a_max=6, name="clip")
    assert "clip" not in spaces(network(clip), planned=False)
    assert spaces(network(clip), planned=True)["clip"] == MAP


def test_other_layouts_and_types_are_native(monkeypatch):
    symbol = network(lambda value: mx.sym.cast(value, "float64"))
    found = spaces(symbol, planned=True)
    assert found["second"] == 8 * 9 * 16 * 16 * 8  # one sample as a matrix


def test_plans_and_estimates_count_them(monkeypatch):
    monkeypatch.setenv("MXNET_MKLDNN_ENABLED", "1")
    estimate = memonger.estimate(network(), **SHAPES)
    assert estimate.by_category["workspace"] == 2 * SECOND + MAP
    plan = memonger.plan(network(), budget="100%", costs="cpu", **SHAPES)
    assert plan.status.value == "not_needed"
    assert plan.baseline_total_bytes == estimate.total_bytes >= plan.total_bytes
    plan = memonger.plan(network(), method="chen", costs="cpu", **SHAPES)
    assert plan.baseline_total_bytes == estimate.total_bytes
    assert plan.fixed_bytes["workspace"] == 2 * (SECOND + MAP)
    assert max(plan.timeline().workspace_bytes) == 2 * (SECOND + MAP)
    assert "workspace" in str(plan).splitlines()[1]


def test_of_another_device_they_are_not_known(monkeypatch):
    monkeypatch.setenv("MXNET_MKLDNN_ENABLED", "1")
    plan = memonger.plan(network(), method="chen", costs="reference", **SHAPES)
    assert plan.fixed_bytes["workspace"] == 0
    assert plan.baseline_total_bytes == plan.baseline_pool_bytes + sum(plan.fixed_bytes.values())


def gated():
    """The copy that `mask_relu` makes of what MKLDNN turned is as large as what it spares."""
    gate = mx.sym.Convolution(mx.sym.var("data"), kernel=(8, 8), num_filter=8, no_bias=True)
    passed = mx.sym.relu(mx.sym.broadcast_add(mx.sym.var("wide"), gate), name="relu")
    waves = mx.sym.cos(mx.sym.sin(mx.sym.var("wide"), name="sin"), name="cos")
    passed = mx.sym.Pooling(passed, global_pool=True, kernel=(2, 2), pool_type="sum")
    waves = mx.sym.sum(waves, axis=(2, 3), keepdims=True)
    return mx.sym.LinearRegressionOutput(passed + waves, name="out")


def test_a_variant_is_refused_for_its_copies(monkeypatch):
    """By the default search, where the copies are made; by time the variant would be chosen."""
    found, cpu = {}, Roofline(DEVICES["cpu"])
    for mkldnn in ("0", "1"):
        monkeypatch.setenv("MXNET_MKLDNN_ENABLED", mkldnn)
        plan = memonger.plan(gated(), budget="90%", costs=cpu, time_limit=2, data=(4, 3, 8, 8),
                             wide=(4, 8, 64, 64))
        found[mkldnn] = plan.decisions["relu"], plan.decisions["sin"]
        assert plan.total_bytes <= plan.budget_bytes
    assert found == {"0": ("mask_relu", "keep"), "1": ("keep", "recompute")}


@pytest.mark.parametrize("pooling, act, dense", [
    # Counted by what stock MXNet asks for: in one-row outputs the gradient has its own layout.
    ({"global_pool": True, "kernel": (1, 1)}, 2, 0), ({"kernel": (16, 16)}, 2, 0),
    ({"kernel": (16, 8), "stride": (8, 8)}, 2, 0), ({"kernel": (8, 8), "stride": (8, 8)}, 1, 0),
    (None, 2, 1)])
def test_gradients_after_pooling_and_dense_layers(pooling, act, dense):
    value = mx.sym.Activation(convolution(mx.sym.var("data"), "conv"), act_type="relu", name="act")
    if pooling:
        value = mx.sym.Pooling(value, pool_type="avg", name="pool", **pooling)
    out = mx.sym.LinearRegressionOutput(
        mx.sym.FullyConnected(value, num_hidden=4, name="dense"), name="out")
    alone = spaces(out, planned=False)
    assert alone["act_backward"] == act * MAP
    assert alone.get("dense_backward", 0) // MAP == dense
    assert alone.get("dense", 0) // MAP == dense


@pytest.mark.parametrize("pooling, copied", [
    ({"global_pool": True, "kernel": (1, 1)}, 1), ({"kernel": (8, 8), "stride": (8, 8)}, 0)])
def test_the_gradient_of_relu_lies_where_that_of_its_output_does(pooling, copied):
    """Counted by what stock MXNet asks for: ``relu`` is not MKLDNN's."""
    value = convolution(convolution(mx.sym.var("data"), "first"), "conv")
    value = mx.sym.Pooling(mx.sym.relu(value), pool_type="avg", name="pool", **pooling)
    out = mx.sym.make_loss(mx.sym.sum(value), name="out")
    assert spaces(out, planned=False)["conv_backward"] == copied * MAP + 2 * SECOND
