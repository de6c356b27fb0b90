"""A saved plan knows how its network was bound, so that it can be run again from the file."""
from __future__ import annotations

import json

import pytest

import memonger
from memonger import planfile
from memonger.errors import PlanSchemaError

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


def test_a_plan_with_variants_comes_back_and_one_with_their_ops_exchanged_does_not():
    x = mx.sym.Variable("data")
    for name in "ab":
        x = mx.sym.Convolution(x, num_filter=4, kernel=(3, 3), pad=(1, 1), name=name)
        x = mx.sym.BatchNorm(x, fix_gamma=False, name=name + "_bn")
        x = mx.sym.Activation(x, act_type="relu", name=name + "_relu")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3, name="fc"), name="softmax")
    plan = memonger.plan(net, budget="95%", time_limit=2, data=(2, 3, 8, 8))
    if not plan.schedule.variants:
        pytest.skip("needs the plugin")
    text = planfile.dumps(plan)
    assert planfile.loads(text) == plan
    data = json.loads(text)
    data["graph"]["implementations"]["columns"]["op"].reverse()
    data["checksum"] = planfile._checksum(data)
    with pytest.raises(PlanSchemaError, match="contradicts itself"):  # it took all memory
        planfile.loads(json.dumps(data))
