"""Kinds of networks that readers of graphs trip over."""
from __future__ import annotations

import mxnet as mx
import pytest

import memonger
from memonger import native
from memonger.mx.capture.record import read


class Sigmoid(mx.operator.CustomOp):
    """A sigmoid in Python."""

    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], 1 / (1 + mx.nd.exp(-in_data[0])))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * out_data[0] * (1 - out_data[0]))


@mx.operator.register("memonger_test_sigmoid")
class SigmoidProp(mx.operator.CustomOpProp):
    """Takes no attributes: one too many and MXNet crashes."""

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return Sigmoid()


def softmax(x, classes=4):
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=classes), name="softmax")


def custom():
    x = mx.sym.var("data")
    for number in range(4):
        x = mx.sym.Custom(mx.sym.FullyConnected(x, num_hidden=32),
                          op_type="memonger_test_sigmoid", name="custom%d" % number)
    return softmax(x), {"data": (64, 32)}


def fused_rnn():
    x = mx.sym.RNN(data=mx.sym.var("data"), parameters=mx.sym.var("parameters"),
                   state=mx.sym.var("state"), state_size=8, num_layers=2, mode="gru", name="rnn")
    return softmax(mx.sym.relu(x)), {"data": (5, 4, 6)}


def several_outputs():
    x = mx.sym.var("data")
    a, b = mx.sym.SliceChannel(mx.sym.exp(0.1 * x), num_outputs=2, axis=1)
    loss = mx.sym.MakeLoss(mx.sym.sum(mx.sym.sqrt(mx.sym.square(a) * mx.sym.sigmoid(b) + 1)))
    return mx.sym.Group([loss, mx.sym.BlockGrad(mx.sym.relu(a)), softmax(b)]), {"data": (8, 6)}


def shared_parameters():
    weight, x = mx.sym.var("weight"), mx.sym.var("data")
    for _ in range(4):
        x = mx.sym.tanh(mx.sym.FullyConnected(x, weight=weight, num_hidden=16, no_bias=True))
    return softmax(x), {"data": (8, 16)}


def long_gradient_sums():
    x = mx.sym.exp(0.1 * mx.sym.var("data"))
    parts = [mx.sym.sigmoid(mx.sym.FullyConnected(x, num_hidden=8)) for _ in range(10)]
    return softmax(mx.sym.concat(*parts, dim=1)), {"data": (16, 8)}


def equal_nodes():
    x = mx.sym.var("data")
    twice = [mx.sym.exp(mx.sym.sqrt(mx.sym.square(x) + 1)) for _ in range(2)]
    return softmax(mx.sym.relu(twice[0] * twice[1])), {"data": (16, 8)}


def sparse_gradients():
    """One gradient that MXNet makes as rows only, and one that it adds to a dense one."""
    data, tied = mx.sym.var("data"), mx.sym.var("tied_weight")
    rows, dense = (
        mx.sym.Embedding(data, weight=weight, input_dim=30, output_dim=6, sparse_grad=True)
        for weight in (mx.sym.var("rows_weight"), tied))
    x = mx.sym.tanh(mx.sym.relu(rows) * mx.sym.sigmoid(dense))
    return softmax(mx.sym.FullyConnected(x, weight=tied, num_hidden=30, no_bias=True,
                                         flatten=False)), {"data": (4, 8)}


NETWORKS = [custom, fused_rnn, several_outputs, shared_parameters, long_gradient_sums,
            equal_nodes, sparse_gradients]


@pytest.mark.parametrize("make", NETWORKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("method", ["sublinear", "auto"])
def test_planned_pool_is_exact_and_training_the_same(make, method):
    with mx.name.NameManager():
        net, shapes = make()
    with native.switched(True, True):
        plan = memonger.plan(net, method=method, variants="none", time_limit=0.3, **shapes)
        assert plan.pool_bytes <= plan.baseline_pool_bytes
        assert read(plan.symbol, shapes).pool_bytes == plan.pool_bytes
        assert memonger.verify(plan.symbol, net, shapes=shapes).identical
        assert memonger.strip(plan.symbol).tojson() == net.tojson()


def test_sparse_gradients_are_those_of_simple_bind():
    net, shapes = sparse_gradients()
    requests = {name: "null" if name in shapes else "write" for name in net.list_arguments()}
    plan = memonger.plan(net, time_limit=0.3, grad_req=requests, shapes=shapes)
    with native.capture() as records:
        executor = plan.symbol.simple_bind(mx.cpu(), grad_req=requests, **shapes)
    assert executor.grad_dict["rows_weight"].stype == "row_sparse"
    assert executor.grad_dict["tied_weight"].stype == "default"
    assert records[-1]["pool_bytes"] == plan.pool_bytes
    assert memonger.verify(plan).ok


def test_custom_ops_run_once():
    net, shapes = custom()
    everything = [op.name for op in read(net, shapes).graph.ops if op.name.startswith("custom")]
    plan = memonger.plan(net, method="sublinear", recompute=everything, **shapes)
    assert not [name for name in everything if plan.decisions[name] == "recompute"]
    assert "its state may refer to the arrays of its first run" in plan.explain("custom0")
    assert memonger.verify(plan.symbol, net, shapes=shapes).identical


def test_zero_size_and_scalar_tensors():
    with mx.util.np_shape(True):
        x, empty = mx.sym.var("data"), mx.sym.var("empty")
        net = mx.sym.MakeLoss(mx.sym.sum(mx.sym.concat(mx.sym.relu(x), empty, dim=0)))
        shapes = {"data": (3, 2), "empty": (0, 2)}
        plan = memonger.plan(net, method="sublinear", shapes=shapes)
        assert memonger.verify(plan.symbol, net, shapes=shapes).identical
        assert memonger.estimate(net, shapes=shapes).by_category["inputs"] == 24
