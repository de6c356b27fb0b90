"""Convolutions with their gradient in two steps, in networks: bytes, order, gradients, plans."""
from __future__ import annotations

import random

import mxnet as mx
import pytest
from reference.judge import validate

import memonger
from memonger.mx.calls.binding import Binding
from memonger.mx.calls.opening import open_network
from memonger.mx.memory.native_workspaces import native_workspaces
from memonger.mx.rewrite.apply import apply_plan_to
from memonger.util.errors import InfeasibleBudget
from mx.test_variants import check_known, named, plan_with

SHAPES = {"data": (2, 3, 16, 16)}


class Network:
    """Large convolutions, of which all but the first are worth it."""

    def __init__(self, no_bias=False, groups=1):
        x = mx.sym.var("data")
        for i in range(3):
            x = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=12, no_bias=no_bias,
                                   num_group=groups if i else 1, name="conv%d" % i)
            if i < 2:
                x = mx.sym.Activation(x, act_type="relu", name="act%d" % i)
        x = mx.sym.Pooling(x, kernel=(4, 4), stride=(4, 4), pool_type="avg", name="pool")
        x = mx.sym.FullyConnected(x, num_hidden=3, name="dense")
        self.symbol, self.shapes = mx.sym.SoftmaxOutput(x, name="softmax"), dict(SHAPES)


def opened(net, grad_req="write"):
    return open_network(net.symbol, Binding(net.shapes, grad_req=grad_req), "reference")


def split_everywhere(net, grad_req="write", again=()):
    network = opened(net, grad_req)
    graph = network.offering("exact").graph
    return network, plan_with(graph, named(graph, "split_convolution"),
                              [graph.op_index[name] for name in again])


@pytest.mark.parametrize("arguments", [{}, {"no_bias": True}, {"groups": 2}], ids=str)
@pytest.mark.parametrize("grad_req", ["write", "add"])
def test_bytes_order_and_gradients(arguments, grad_req):
    net = Network(**arguments)
    network, plan = split_everywhere(net, grad_req, again=["act0", "act1"])
    assert [plan.decisions["conv%d" % i] for i in range(3)] == \
        ["keep"] + 2 * ["split_convolution"]
    planned = apply_plan_to(net.symbol, plan)
    bound = network.runner.read(planned)
    assert bound.pool_bytes == plan.pool_bytes
    assert memonger.strip(planned).tojson() == net.symbol.tojson()
    assert memonger.verify(planned, net.symbol, shapes=net.shapes, grad_req=grad_req).identical


def test_the_two_parts_take_the_time_and_the_workspace_of_the_whole(monkeypatch):
    monkeypatch.setenv("MXNET_MKLDNN_ENABLED", "0")
    network, plan = split_everywhere(Network())
    parts = network.runner.read(apply_plan_to(network.symbol, plan))
    whole = network.form.captured
    times = {name: sum(seconds for op, seconds in zip(
        found.graph.ops, network.runner.model.op_times(found.graph, found.attributes).times_s)
        if "onvolution" in op.kind and op.is_backward)
        for name, found in (("parts", parts), ("whole", whole))}
    assert times["parts"] == pytest.approx(times["whole"], rel=0.1)
    spaces = [max(native_workspaces(found.graph, found.attributes)) for found in (parts, whole)]
    assert spaces[0] == spaces[1] == 12 * 9 * 16 * 16 * 4


@pytest.mark.parametrize("grad_req", ["write", "add"])
def test_predictions_with_random_variants_and_clones(grad_req):
    for seed, arguments in enumerate(({}, {"no_bias": True}, {"groups": 2})):
        net = Network(**arguments)
        check_known(net, opened(net, grad_req), False, random.Random(seed), (0.6, 1.0))


def test_data_made_again_for_the_weights_gradient_alone():
    """The gradient of the data comes right behind, without the data."""
    net = Network()
    network, plan = split_everywhere(net, again=["act0"])
    bound = network.runner.read(apply_plan_to(net.symbol, plan)).graph
    at = [op.name for op in bound.ops].index("act0_recompute1")
    readers = [i for t in bound.ops[at].outputs for i in bound.consumers[t]]
    assert bound.ops[at + 1].kind == "_backward_memonger_split_convolution_weight"
    assert bound.ops[at + 2].kind == "_backward_memonger_split_convolution_data"
    assert at + 1 in readers and at + 2 not in readers


def test_plans_in_less_memory_than_one_gradient_op_needs(tmp_path):
    net = Network()
    net.shapes = {"data": (8, 3, 64, 64)}
    least = {}
    for variants in ("none", "exact"):
        with pytest.raises(InfeasibleBudget) as error:
            memonger.plan(net.symbol, budget="1B", variants=variants, **net.shapes)
        least[variants] = error.value.minimum_bytes
    assert least["exact"] < 0.85 * least["none"]
    plan = memonger.plan(net.symbol, budget=least["exact"], variants="exact", **net.shapes)
    assert "split_convolution" in set(plan.decisions.values())
    assert validate(plan) == []
    path = str(tmp_path / "plan.json")
    plan.save(path)
    loaded = memonger.load_plan(path)
    assert loaded.schedule == plan.schedule and loaded.graph == plan.graph
    assert plan.explain("conv1") and str(plan)
    assert memonger.verify(loaded.symbol, net.symbol, shapes=SHAPES).identical


def test_convolutions_with_frozen_weights_stay_whole():
    """Only one of their gradients runs, and others that need as much are not worth it then."""
    net = Network()
    request = {name: "null" if name.startswith("conv1") else "write"
               for name in net.symbol.list_arguments()}
    for grad_req, offers in (("write", 2), (request, 0)):
        graph = opened(net, grad_req).offering("exact").graph
        assert len(named(graph, "split_convolution")) == offers


def test_cudnn_off_is_refused_with_a_reason():
    x = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), num_filter=2, cudnn_off=True,
                           name="conv")
    from memonger.mx.symbol.swap import candidates, refusals
    assert candidates(x.tojson()) == {}
    assert "cuDNN" in refusals(x.tojson())["conv"]["split_convolution"]
