"""Measured costs of small networks."""
from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import List

import pytest

mx = pytest.importorskip("mxnet")

import memonger  # noqa: E402
from memonger import native  # noqa: E402
from memonger.mx.capture.record import read  # noqa: E402
from memonger.mx.costs.models import is_view, op_signature  # noqa: E402
from memonger.mx.profile.in_place import by_signature, step_seconds  # noqa: E402
from memonger.mx.profile.run import circumstances, profile, stored_profile  # noqa: E402
from memonger.mx.profile.variants import (  # noqa: E402
    SwappedNetwork,
    seconds_with_neighbours,
    swapped_networks,
)
from memonger.mx.rewrite.variant_graph import offers  # noqa: E402
from memonger.mx.symbol.swap import ORIGINAL  # noqa: E402

pytestmark = pytest.mark.skipif(not native.available(), reason="the plugin is not built")

SHAPES = {"data": (2, 3, 16, 16)}


def small_net():
    data = mx.sym.var("data")
    body = mx.sym.Convolution(data, num_filter=4, kernel=(3, 3), pad=(1, 1), name="conv1")
    body = mx.sym.Activation(mx.sym.BatchNorm(body, name="bn1"), act_type="relu", name="act1")
    body = body + mx.sym.Convolution(body, num_filter=4, kernel=(3, 3), pad=(1, 1), name="conv2")
    body = mx.sym.FullyConnected(mx.sym.Flatten(mx.sym.Dropout(body)), num_hidden=5, name="fc")
    return mx.sym.SoftmaxOutput(body, name="softmax")


@pytest.fixture
def alone(monkeypatch):
    """The network is too large for the memory, so each op runs alone."""
    monkeypatch.setattr("memonger.mx.profile.run._fits", lambda captured, ctx: False)


@pytest.mark.parametrize("fits", [True, False])
def test_each_op_is_measured(tmp_path, monkeypatch, fits):
    monkeypatch.setattr("memonger.mx.profile.run._fits", lambda captured, ctx: fits)
    path = str(tmp_path / "p.json")
    seen = []
    found = profile(small_net(), SHAPES, path=path, repeats=2, progress=seen.append)
    captured = read(small_net(), SHAPES)
    graph = captured.graph
    times = found.op_times(graph, captured.attributes)
    missing = {graph.ops[i].kind for i in times.estimated}
    assert missing <= {"_zeros_without_dtype"}
    assert all(t > 0 for op, t in zip(graph.ops, times.times_s) if not is_view(graph, op))
    assert sum(times.times_s) < 1.0
    assert found.source.startswith("profile: ")
    assert json.loads(Path(path).read_text())["facts"] == circumstances(mx.cpu())
    fractions = [p.fraction for p in seen]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0


def test_ops_with_sparse_gradients_are_measured_alone(tmp_path, alone):
    rows = mx.sym.Embedding(mx.sym.var("data"), input_dim=30, output_dim=6, sparse_grad=True,
                            name="embedding")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.tanh(rows), num_hidden=3))
    request = dict.fromkeys(net.list_arguments(), "write")
    request["data"] = "null"
    found = profile(net, {"data": (4, 8)}, path=str(tmp_path / "p.json"), repeats=1,
                    grad_req=request)
    captured = read(net, {"data": (4, 8)}, grad_req=request)
    estimated = found.op_times(captured.graph, captured.attributes).estimated
    assert not [i for i in estimated if captured.graph.ops[i].name.startswith("embedding")]


def test_stored_times_are_not_measured_again(tmp_path, alone):
    path = str(tmp_path / "p.json")
    profile(small_net(), SHAPES, path=path, repeats=1)
    data = json.loads(Path(path).read_text())
    data["times_s"] = dict.fromkeys(data["times_s"], 0.25)
    Path(path).write_text(json.dumps(data))
    found = profile(small_net(), SHAPES, path=path, repeats=1)
    assert set(found.times_s.values()) == {0.25}


def test_the_stored_profile_is_found_and_planned_with(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert stored_profile() is None
    assert memonger.plan(small_net(), method="sublinear", **SHAPES).costs == "roofline: reference"
    made = profile(small_net(), SHAPES, repeats=1)
    assert set(stored_profile().times_s) == set(made.times_s)
    planned = memonger.plan(small_net(), method="sublinear", **SHAPES)
    assert planned.costs.startswith("profile: ")
    monkeypatch.setenv("OMP_NUM_THREADS", "63")
    assert stored_profile() is None


def test_only_wanted_gradients_are_measured(tmp_path, alone):
    # The data needs no gradient: one product of matrices in place of two.
    data, weight = mx.sym.var("data"), mx.sym.var("weight")
    net = mx.sym.FullyConnected(data, weight=weight, num_hidden=256, no_bias=True, name="fc")
    shapes, requests = {"data": (512, 256)}, ({"data": "null", "weight": "write"}, "write")
    keys = []
    for request in requests:
        captured = read(net, shapes, grad_req=request)
        backward = [op.kind for op in captured.graph.ops].index("_backward_FullyConnected")
        keys.append(op_signature(captured.graph, backward, captured.attributes))
        found = profile(net, shapes, grad_req=request, repeats=1,
                        path=str(tmp_path / ("%d.json" % len(keys))))
        assert keys[-1] in found.times_s
    assert keys[0] != keys[1]


def test_sums_that_mxnet_folds_away_do_not_shift_the_times(tmp_path):
    # Nine readers: gradients are added in place, and MXNet does not run `_grad_add` at all.
    data = mx.sym.var("data")
    shared = mx.sym.exp(data, name="shared")
    total = mx.sym.Group([mx.sym.sin(shared * float(i + 2), name="s%d" % i) for i in range(10)])
    captured = read(total, {"data": (64, 64)})
    assert any(op.kind == "_grad_add" for op in captured.graph.ops)
    seconds = step_seconds(captured.graph, total, {"data": (64, 64)}, None, "write", mx.cpu(), 10.0,
                           repeats=1)
    times = by_signature(captured.graph, captured.attributes, seconds)
    kinds = {json.loads(key)[0] for key in times}
    assert {"exp", "sin", "_mul_scalar"} <= kinds
    # Sums that ran in place have no time of their own.
    folded = [op for op in captured.graph.ops if op.kind == "_grad_add"]
    assert len(folded) >= 2


def test_another_graph_is_noticed():
    captured = read(small_net(), SHAPES)
    other = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3))
    assert step_seconds(captured.graph, other, SHAPES, None, "write", mx.cpu(), 10.0,
                        repeats=1) is None


def test_each_variant_is_swapped_in_once():
    net = small_net()
    networks = list(swapped_networks(net, read(net, SHAPES).graph,
                                     lambda symbol: read(symbol, SHAPES)))
    offered = offers(read(net, SHAPES).graph, net.tojson())
    ran = [(node["name"], node["op"]) for network in networks
           for node in json.loads(network.symbol.tojson())["nodes"]
           if ORIGINAL in node.get("attrs", {})]
    assert len(ran) == len(set(ran)) == sum(len(kinds) for kinds in offered.values())
    for network in networks:
        names = {network.captured.graph.ops[i].name for i in network.ops}
        assert network.chosen <= names


@pytest.mark.parametrize("fits", [True, False])
def test_variants_are_measured_too(tmp_path, monkeypatch, fits):
    monkeypatch.setattr("memonger.mx.profile.run._fits", lambda captured, ctx: fits)
    found = profile(small_net(), SHAPES, path=str(tmp_path / "p.json"), repeats=1)
    net = small_net()
    for network in swapped_networks(net, read(net, SHAPES).graph,
                                    lambda symbol: read(symbol, SHAPES)):
        assert network.signatures() <= set(found.times_s)


def test_what_readers_take_longer_counts_for_the_variant_and_not_what_they_save():
    data = mx.sym.var("data")
    net = mx.sym.FullyConnected(mx.sym.Activation(data, act_type="relu", name="act"), num_hidden=3,
                                name="fc")
    shapes = {"data": (4, 8)}
    graph = read(net, shapes).graph
    swapped, = swapped_networks(net, graph, lambda symbol: read(symbol, shapes))
    assert isinstance(swapped, SwappedNetwork) and swapped.chosen == {"act"}
    before = dict.fromkeys(range(len(graph.ops)), 1.0)
    after = dict.fromkeys(range(len(swapped.captured.graph.ops)), 1.0)
    names = [op.name for op in swapped.captured.graph.ops]
    after[names.index("act")] = 2.0
    after[names.index("fc")] = 1.5
    found = seconds_with_neighbours(graph, before, swapped, after)
    assert found[names.index("act")] == 2.5
    assert sum(found.values()) == 3.5
    after[names.index("fc")] = 0.0
    assert seconds_with_neighbours(graph, before, swapped, after)[names.index("act")] == 2.0


class Interrupting(mx.operator.CustomOp):
    """Keeps its input; in its second forward the user presses Ctrl-C."""

    runs: List[str] = []

    def forward(self, is_train, req, in_data, out_data, aux):
        self.runs.append("forward")
        if self.runs.count("forward") == 2:
            os.kill(os.getpid(), signal.SIGINT)
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.runs.append("backward")
        self.assign(in_grad[0], req[0], out_grad[0])


@mx.operator.register("interrupting")
class InterruptingProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, in_shapes, in_dtypes):
        return Interrupting()


def test_an_interrupt_during_a_measured_step_is_raised_after_it():
    value = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    net = mx.sym.SoftmaxOutput(mx.sym.Custom(value, op_type="interrupting", name="custom"),
                               name="softmax")
    shapes = {"data": (2, 4)}
    with pytest.raises(KeyboardInterrupt):
        step_seconds(read(net, shapes).graph, net, shapes, None, "write", mx.cpu(), 9.0)
    assert Interrupting.runs == ["forward", "backward"] * 2  # the first step warms up
