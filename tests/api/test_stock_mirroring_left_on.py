"""MXNET_BACKWARD_DO_MIRROR=1, as users of dmlc/mxnet-memonger have it: plans are the same."""
from __future__ import annotations

import mxnet as mx
import pytest
from mxnet import autograd
from needed import needs_plugin

import memonger
from memonger import native

pytestmark = needs_plugin
SHAPES = {"data": (4, 3, 16, 16)}
OPTIONS = {"variants": "none", "method": "auto", "time_limit": 1.0}


def network():
    x = mx.sym.var("data")
    for i in range(6):
        x = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=8, name="conv%d" % i)
        x = mx.sym.BatchNorm(x, name="bn%d" % i)
        x = mx.sym.Activation(x, act_type="relu", name="relu%d" % i)
    x = mx.sym.FullyConnected(x, num_hidden=10, name="fc")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def bound(symbol):
    """The pool that an executor has, and its ops that MXNet mirrored."""
    with native.capture() as records:
        executor = symbol.simple_bind(mx.cpu(), **SHAPES)
    mirrored = [node["name"] for node in records[-1]["nodes"] if node["name"].endswith("_mirror")]
    del executor
    return records[-1]["pool_bytes"], mirrored


@pytest.mark.parametrize("options", [{"recompute": ["*"]}, {"budget": "300%"},
                                     {"method": "sublinear"}, {"variants": "exact",
                                                               "recompute": ["bn*"]}], ids=str)
def test_a_plan_is_the_one_without_the_variable(options, monkeypatch):
    usual = memonger.plan(network(), **{**OPTIONS, **options}, **SHAPES)
    alone_bytes, _ = bound(network())
    monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", "1")
    plan = memonger.plan(network(), **{**OPTIONS, **options}, **SHAPES)
    assert plan.decisions == usual.decisions and plan.pool_bytes == usual.pool_bytes
    assert bound(plan.symbol) == (plan.pool_bytes, [])
    assert memonger.estimate(plan.symbol, **SHAPES).pool_bytes == plan.pool_bytes
    assert memonger.verify(plan).identical

    pool_bytes, mirrored = bound(network())
    assert mirrored and pool_bytes != alone_bytes
    assert memonger.estimate(network(), **SHAPES).pool_bytes == plan.baseline_pool_bytes
    assert any("MXNET_BACKWARD_DO_MIRROR is set: without a plan MXNet mirrors ops, and its pool "
               "takes %d bytes, or %d with the variable unset" % (
                   plan.baseline_pool_bytes, usual.baseline_pool_bytes) in note
               for note in plan.notes)


def test_a_symbol_planned_without_the_variable_keeps_its_bytes_with_it(monkeypatch):
    plan = memonger.plan(network(), budget="300%", **OPTIONS, **SHAPES)
    assert not plan.schedule.recomputed()
    monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", "1")
    assert bound(plan.symbol) == (plan.pool_bytes, [])


def test_a_block_is_not_mirrored_in_any_case(monkeypatch):
    plans = []
    for value in ("0", "1"):
        monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", value)
        block = mx.gluon.SymbolBlock(network(), [mx.sym.var("data"), mx.sym.var("softmax_label")])
        block.initialize()
        block.hybridize(static_alloc=True)
        inputs = mx.nd.ones(SHAPES["data"]), mx.nd.ones(4)
        plans.append(memonger.gluon.plan(block, *inputs, recompute=["*"], variants="none",
                                         time_limit=0.3))
        with native.capture() as records, autograd.record():
            loss = block(*inputs)
            loss.backward()
        assert sum(record["pool_bytes"] for record in records) == plans[-1].pool_bytes
    assert plans[0].baseline_total_bytes == plans[1].baseline_total_bytes
    assert plans[0].decisions == plans[1].decisions and plans[0].notes == plans[1].notes
