"""A saved plan knows how its network was bound, so that it can be run again from the file."""
from __future__ import annotations

import json
import random

import numpy as np
import pytest
from mx.random_symbols import random_symbol
from plans.test_plan_file import edited

import memonger
from memonger import native
from memonger.plans import plan_file as planfile
from memonger.plans.consistency import contradictions
from memonger.plans.plan_file import loads
from memonger.util.errors import PlanSchemaError

mx = pytest.importorskip("mxnet")


def two_layers():
    body = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=64, name="a")
    body = mx.sym.Activation(body, act_type="relu", name="relu")
    body = mx.sym.FullyConnected(body, num_hidden=4, name="b")
    return mx.sym.SoftmaxOutput(body, name="softmax")


def test_types_and_gradient_requests_are_saved_and_used(tmp_path):
    requests = {"data": "null", "softmax_label": "null", "a_weight": "write", "a_bias": "add",
                "b_weight": "write", "b_bias": "null"}
    plan = memonger.plan(two_layers(), method="sublinear", data=(8, 16),
                         type_dict={"data": "float64"}, grad_req=requests)
    plan.save(str(tmp_path / "plan.json"))
    loaded = memonger.load_plan(str(tmp_path / "plan.json"))
    assert loaded.options == plan.options
    assert loaded.options["type_dict"] == {"data": "float64"}
    assert loaded.options["grad_req"] == requests
    verification = memonger.verify(loaded)
    assert verification.identical
    gradients = {d.tensor for d in verification.differences if d.tensor.startswith("gradient")}
    assert gradients == {"gradient a_weight", "gradient a_bias", "gradient b_weight"}


def test_one_request_for_all_is_saved_as_a_word():
    plan = memonger.plan(two_layers(), method="sublinear", data=(8, 16))
    assert plan.options["grad_req"] == "write" and plan.options["type_dict"] is None


def larger(plan, field):
    """The plan's text with one number made larger."""
    if field in plan.fixed_bytes:
        return edited(plan, fixed_bytes={**plan.fixed_bytes, field: plan.fixed_bytes[field] + 8})
    return edited(plan, **{field: getattr(plan, field) + 8})


@pytest.mark.parametrize("optimizer", [
    None, ("adam", {}), ("sgd", {"momentum": np.float32(0.9), "multi_precision": np.bool_(True)})])
def test_all_bytes_of_a_saved_plan_are_confirmed(optimizer):
    options = dict(zip(("optimizer", "optimizer_params"), optimizer or ()))
    plan = memonger.plan(two_layers(), time_limit=0.2, data=(8, 16),
                         type_dict={"data": "float16"}, **options)
    assert loads(planfile.dumps(plan)) == plan
    # MXNet alone knows what an optimizer keeps.
    stated = {"pool_bytes", "baseline_pool_bytes", *plan.fixed_bytes} - {"optimizer"}
    assert len(stated) == 8
    for field in stated:
        with pytest.raises(PlanSchemaError, match="bytes stated"):
            loads(larger(plan, field))


def test_the_bytes_of_a_saved_gluon_plan_are_confirmed():
    block = mx.gluon.nn.HybridSequential(prefix="net_")
    block.add(mx.gluon.nn.Dense(8, activation="relu"), mx.gluon.nn.Dense(8, activation="tanh"),
              mx.gluon.nn.Dense(3))
    block.initialize()
    block.hybridize()
    plan = memonger.gluon.plan(block, (4, 6), method="sublinear", optimizer="adam")
    assert loads(planfile.dumps(plan)) == plan
    for field in ("pool_bytes", "baseline_pool_bytes", "parameters", "gradients"):
        with pytest.raises(PlanSchemaError, match="bytes stated"):
            loads(larger(plan, field))


@pytest.mark.parametrize("seed", range(12))
def test_plans_of_random_networks_are_confirmed(seed):
    draw = random.Random(seed)
    symbol, shapes = random_symbol(seed, 8)
    with native.switched(*draw.choice([(True, True, True), (True, True), (True, False)])):
        plan = memonger.plan(symbol, variants=draw.choice(("none", "all")), time_limit=0.1,
                             grad_req=draw.choice(("write", "add")), shapes=shapes)
    assert contradictions(plan) == []
    assert loads(planfile.dumps(plan)) == plan


def test_a_pool_other_than_predicted_is_told_and_confirmed(monkeypatch):
    """MXNet's own allocation, told what to share by its environment variable."""
    monkeypatch.setenv("NNVM_EXEC_MATCH_RANGE", "0")
    symbol, shapes = random_symbol(1, 8)
    with native.switched(True, False):
        plan = memonger.plan(symbol, time_limit=0.2, shapes=shapes)
    [note] = [note for note in plan.notes if "were predicted" in note]
    assert "%d bytes" % plan.pool_bytes in note
    assert loads(planfile.dumps(plan)) == plan


def test_a_plan_with_variants_comes_back_and_one_with_their_ops_exchanged_does_not():
    x = mx.sym.Variable("data")
    for name in "ab":
        x = mx.sym.Convolution(x, num_filter=4, kernel=(3, 3), pad=(1, 1), name=name)
        x = mx.sym.BatchNorm(x, fix_gamma=False, name=name + "_bn")
        x = mx.sym.Activation(x, act_type="relu", name=name + "_relu")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3, name="fc"), name="softmax")
    plan = memonger.plan(net, budget="95%", time_limit=0.5, data=(2, 3, 8, 8))
    if not plan.schedule.variants:
        pytest.skip("needs the plugin")
    text = planfile.dumps(plan)
    assert loads(text) == plan
    graph = json.loads(text)["graph"]
    graph["implementations"]["columns"]["op"].reverse()
    with pytest.raises(PlanSchemaError, match="contradicts itself"):  # it took all memory
        loads(edited(plan, graph=graph))
