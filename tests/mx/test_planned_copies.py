"""Copies between MKLDNN's layouts and others that planned networks have while an op runs."""
from __future__ import annotations

import json

import mxnet as mx
import pytest
from forked import python
from needed import needs_plugin

import memonger

pytestmark = needs_plugin
#: What MKLDNN's own objects take in a warm process.
OWN_BYTES = 12 << 20
IMAGES = 16
MAP_BYTES = IMAGES * 32 * 64 * 64 * 4
SHAPES = {"data": (IMAGES, 3, 64, 64)}

_TAKEN = """
import json, sys
sys.path.insert(0, "tests")
import memonger
from memonger.mx.check.measure import allocated_bytes
from mx.test_planned_copies import SHAPES, plain
plan = memonger.plan(plain(sys.argv[1]), time_limit=1.0, **SHAPES, **json.loads(sys.argv[2]))
print("bytes:", plan.total_bytes, allocated_bytes(plan.symbol, SHAPES))
"""


def plain(spelling):
    """Convolutions with relu: MXNet's ``relu`` is not MKLDNN's, ``Activation`` is."""
    x = mx.sym.var("data")
    for i in range(6):
        x = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=32, name="conv%d" % i)
        x = mx.sym.relu(x, name="relu%d" % i) if spelling == "relu" else \
            mx.sym.Activation(x, act_type="relu", name="relu%d" % i)
    x = mx.sym.Pooling(x, global_pool=True, pool_type="avg", kernel=(1, 1), name="pool")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=10, name="fc"),
                                name="softmax")


@pytest.fixture
def mkldnn(monkeypatch):
    """MKLDNN as users have it, for plans made here; no op runs here."""
    monkeypatch.setenv("MXNET_MKLDNN_ENABLED", "1")
    monkeypatch.setenv("MEMONGER_COSTS", "cpu")


@pytest.mark.parametrize("spelling, options", [
    ("relu", {"budget": "50%"}), ("relu", {"variants": "none"}), ("Activation", {})], ids=str)
def test_a_planned_process_takes_what_is_predicted(spelling, options):
    done = python("-c", _TAKEN, spelling, json.dumps(options), MXNET_MKLDNN_ENABLED="1",
                  MEMONGER_COSTS="cpu")
    assert done.returncode == 0, done.stdout[-2000:]
    total, taken = [int(word) for word in done.stdout.rsplit("bytes:", 1)[1].split()]
    assert -0.02 * total < taken - total < OWN_BYTES


def test_one_copy_is_counted_where_arrays_are_whole_buffers(mkldnn):
    plan = memonger.plan(plain("relu"), budget="50%", variants="none", time_limit=1.0, **SHAPES)
    assert plan.fixed_bytes["layout_copies"] == MAP_BYTES
    assert plan.total_bytes == memonger.estimate(plan.symbol, **SHAPES).total_bytes
    usual = memonger.plan(plain("Activation"), budget="100%", variants="none", time_limit=1.0,
                          **SHAPES)
    assert "layout_copies" not in usual.fixed_bytes


def test_a_budget_holds_with_the_copy(mkldnn):
    """The first plan that the search finds fits without the copy, and not with it."""
    least = memonger.plan(plain("relu"), variants="none", time_limit=1.0, **SHAPES)
    roomy = memonger.plan(plain("relu"), budget="50%", variants="none", time_limit=1.0, **SHAPES)
    assert least.total_bytes < roomy.total_bytes
    budget = roomy.total_bytes - roomy.fixed_bytes["layout_copies"] // 2
    plan = memonger.plan(plain("relu"), budget=budget, variants="none", time_limit=1.0, **SHAPES)
    assert plan.total_bytes <= budget


def test_blocks_have_the_copy_too(mkldnn):
    block = mx.gluon.SymbolBlock(plain("relu"), [mx.sym.var("data"), mx.sym.var("softmax_label")])
    block.initialize()
    block.hybridize(static_alloc=True)
    plan = memonger.gluon.plan(block, SHAPES["data"], (IMAGES,), variants="none",
                               recompute=["relu3"], time_limit=0.5)
    assert plan.fixed_bytes["layout_copies"] == MAP_BYTES


class Residual(mx.gluon.HybridBlock):
    """Layers whose fused variants write in MKLDNN's layouts."""

    def __init__(self):
        super().__init__()
        self.first = mx.gluon.nn.Conv2D(32, 3, padding=1)
        self.norm = mx.gluon.nn.BatchNorm()
        self.second = mx.gluon.nn.Conv2D(32, 3, padding=1)

    def hybrid_forward(self, F, x):
        return F.relu(x + self.second(F.relu(self.norm(self.first(x)))))


def of_block(**options):
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    net.add(nn.Conv2D(32, 3, padding=1, activation="relu"), nn.MaxPool2D(), Residual(), Residual(),
            nn.GlobalAvgPool2D(), nn.Dense(10))
    net.initialize()
    net.hybridize(static_alloc=True)
    return memonger.gluon.plan(net, (64, 3, 32, 32), time_limit=1.0, **options)


def of_symbol(**options):
    return memonger.plan(plain("relu"), time_limit=1.0, **SHAPES, **options)


@pytest.mark.parametrize("planned, variants, share", [
    (of_block, "exact", "95%"), (of_block, "exact", "80%"), (of_block, "exact", "60%"),
    (of_block, "none", "80%"), (of_symbol, "exact", "40%"), (of_symbol, "none", "40%"),
    (of_symbol, "none", "20%")])
def test_what_a_refusal_calls_possible_is_possible(mkldnn, planned, variants, share):
    try:
        planned(budget=share, variants=variants)
    except memonger.errors.InfeasibleBudget as error:
        refused = error
        assert "executor" not in str(error)
        print(share, variants, error, error.minimum_bytes)
    else:
        return
    plan = planned(budget=refused.minimum_bytes, variants=variants)
    assert plan.total_bytes <= refused.minimum_bytes <= plan.baseline_total_bytes
