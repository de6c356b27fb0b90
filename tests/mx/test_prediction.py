"""The pool predicted without allocating is the pool of the bound executor, to the byte."""
from __future__ import annotations

import mxnet as mx
import pytest
from training_nets import ZOO
from training_nets import small_network as build

import memonger
from memonger import native
from memonger.graph.schedule import expand
from memonger.graph.stock_mirroring import expand_mirrored, safe_to_mirror
from memonger.memory.storage import plan_storage
from memonger.mx.capture.record import read
from memonger.mx.check.verify import verify
from memonger.mx.symbol.planned_symbol import apply_mirroring
from mx.random_symbols import random_recompute, random_symbol


@pytest.fixture
def stock():
    with native.switched(False, False):
        yield


@pytest.mark.parametrize("name", sorted(ZOO))
def test_unplanned_pool_of_known_networks(name):
    net = build(name)
    for plugin, model in ((False, "stock"), (True, "best")):
        with native.switched(plugin, plugin):
            captured = read(net.symbol, net.shapes)
        graph = captured.graph
        graph.check()
        assert plan_storage(graph, expand(graph, {}), model).pool_bytes == captured.pool_bytes


def test_pool_of_a_module():
    """Module asks for no gradients of data and labels; so must the plan for its pool."""
    net = build("alexnet")
    requests = {name: "null" if name in net.shapes else "write"
                for name in net.symbol.list_arguments()}
    plan, other = (memonger.plan(net.symbol, time_limit=0.5, grad_req=requests, shapes=net.shapes)
                   for requests in (requests, "write"))
    for planned in (plan, other):
        module = mx.mod.Module(planned.symbol, ["data"], ["softmax_label"])
        with native.capture() as records:
            module.bind([("data", net.shapes["data"])],
                        [("softmax_label", net.shapes["softmax_label"])])
        assert (records[-1]["pool_bytes"] == planned.pool_bytes) == (planned is plan)
        taken = records[-1]["pool_bytes"] + sum(plan.fixed_bytes.values())
        assert taken <= planned.total_bytes


@pytest.mark.parametrize("seed", range(30))
def test_pool_of_random_networks_under_stock_mirroring(seed, stock):
    symbol, shapes = random_symbol(seed)
    captured = read(symbol, shapes)
    graph = captured.graph
    assert plan_storage(graph, expand(graph, {}), "stock").pool_bytes == captured.pool_bytes
    for trial in range(2):
        mirrored = set(random_recompute(graph, 10 * seed + trial))
        planned = mx.sym.load_json(apply_mirroring(symbol.tojson(), graph, mirrored))
        bound = read(planned, shapes)
        predicted = plan_storage(graph, expand_mirrored(graph, mirrored), "stock")
        assert predicted.pool_bytes == bound.pool_bytes


@pytest.mark.parametrize("seed", range(12))
def test_safe_mirroring_gives_the_same_gradients_on_stock_mxnet(seed, stock):
    symbol, shapes = random_symbol(seed)
    graph = read(symbol, shapes).graph
    mirrored = safe_to_mirror(graph, set(random_recompute(graph, seed)))
    planned = mx.sym.load_json(apply_mirroring(symbol.tojson(), graph, mirrored))
    assert verify(planned, symbol, shapes).identical


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {"method": "sublinear"}, {"variants": "exact", "time_limit": 5.0}], ids=["plugin", "default"])
@pytest.mark.parametrize("name", sorted(ZOO))
def test_plans_of_known_networks(name, options):
    """Exact bytes, never larger than no plan, and two steps bit for bit."""
    net = build(name)
    with native.switched(True, True):
        plan = memonger.plan(net.symbol, shapes=net.shapes, **options)
        assert plan.pool_bytes <= plan.baseline_pool_bytes
        assert read(plan.symbol, net.shapes).pool_bytes == plan.pool_bytes
        assert verify(plan.symbol, net.symbol, net.shapes, steps=2).identical


def test_heads_that_mxnet_merges_stay_merged_in_an_arena():
    """The arena's mark is on one op; an op that computes the same must have it, too.

    The merged head runs among the gradients, and reads the first run of what it reads.
    """
    x = mx.sym.relu(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8), name="relu")
    x = mx.sym.tanh(mx.sym.square(x, name="square"), name="tanh")
    symbol = mx.sym.Group([mx.sym.sum(x, name="first"), mx.sym.sum(x, name="second")])
    plan = memonger.plan(symbol, data=(4, 6), recompute=["*"], variants="none")
    assert plan.storage == "arena" and plan.predicted_pool_bytes is None
    assert plan.decisions["relu"] == "recompute" and plan.decisions["tanh"] == "keep"
    assert memonger.strip(plan).tojson() == symbol.tojson()
    assert memonger.verify(plan).identical
