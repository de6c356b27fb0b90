"""Without the native plugin memonger still plans, and says what is missing."""
from __future__ import annotations

import json

import pytest
from needed import BUILD_ADVICE

SCRIPT = r"""
import json, logging, sys
logging.basicConfig(stream=sys.stderr)
import memonger
import mxnet as mx
from memonger.zoo import nets
from memonger.errors import InfeasibleBudget, InputError, PluginMissing
net = nets.build("resnet18", 2, image=64)
plan = memonger.plan(net.symbol, time_limit=0.5, **net.shapes)
plan.save("plan.json")
hinted = nets.build("dmlc_resnet50", 8, image=112, hints=True)
answer = {
    "available": memonger.native.available(), "backend": plan.backend, "notes": plan.notes,
    "before": memonger.get_cost(net.symbol, **net.shapes),
    "after": memonger.get_cost(plan.symbol, **net.shapes),
    "claimed": plan.pool_bytes >> 20,
    "hinted": [memonger.get_cost(s, **hinted.shapes) for s in (
        hinted.symbol, memonger.search_plan(hinted.symbol, **hinted.shapes))],
    "strip": memonger.strip(plan.symbol).tojson() == net.symbol.tojson(),
    "same": memonger.verify(plan.symbol, net.symbol, **net.shapes).identical,
    "again": memonger.plan(plan.symbol, time_limit=0.5,
                           **net.shapes).symbol_json == plan.symbol_json,
    "recomputed": sum(d == "recompute" for d in plan.decisions.values()),
}
for name, call, options, error in (
        ("milp", memonger.plan, {"method": "milp"}, PluginMissing),
        ("keep", memonger.plan, {"keep": ["*relu*"]}, PluginMissing),
        ("optimizer", memonger.plan, {"optimizer": "adam"}, PluginMissing),
        ("budget", memonger.plan, {"budget": "1KB"}, InfeasibleBudget),
        ("searched", memonger.search_plan, {"budget": "1KB"}, InfeasibleBudget)):
    try:
        call(net.symbol, **options, **net.shapes)
    except error as caught:
        answer[name] = str(caught)
answer["loaded"] = memonger.load_plan("plan.json") == plan
first = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="fc0")
relu = mx.sym.Activation(first, act_type="relu", name="relu0", force_mirroring="True")
small = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(relu, num_hidden=8), name="softmax")
forced = memonger.plan(small, data=(4, 8))
answer["forced"] = [forced.status, forced.decisions["relu0"], forced.decisions["fc0"],
                    forced.symbol.tojson() == small.tojson()]
info = {}
memonger.make_mirror_plan(net.symbol, 0.5, info, **net.shapes)
answer["largest_segment_bytes"] = info["max_size"]
masked = mx.sym.MakeLoss(mx.sym.contrib.boolean_mask(mx.sym.var("data"), mx.sym.var("mask")))
try:
    memonger.plan(masked, data=(4, 3), mask=(4,))
except InputError as caught:
    answer["masked"] = str(caught)
print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def answer(tmp_path_factory, forked):
    folder = str(tmp_path_factory.mktemp("empty"))
    child = forked.run(SCRIPT, folder, MEMONGER_NATIVE_DIR=folder)
    assert child.returncode == 0, child.stderr
    return {**json.loads(child.stdout.splitlines()[-1]), "stderr": child.stderr}


def test_shapes_that_only_a_run_knows(answer):
    assert "known only when it runs" in answer["masked"]


def test_it_plans_for_stock_mirroring_and_is_no_worse_than_no_plan(answer):
    assert answer["available"] is False and answer["backend"] == "stock"
    assert answer["claimed"] == answer["after"] < answer["before"]
    assert answer["recomputed"] > 0
    assert answer["hinted"][1] < answer["hinted"][0]


def test_training_is_the_same_and_the_plan_comes_off(answer):
    assert answer["same"] and answer["strip"] and answer["again"]


def test_files_and_the_users_own_mirroring_stay_as_they_are(answer):
    assert answer["loaded"]
    assert answer["forced"] == ["not_needed", "recompute", "keep", True]


def test_it_says_what_is_missing(answer):
    assert BUILD_ADVICE in answer["stderr"]
    assert "without the native plugin" in answer["notes"][0]
    assert "needs the native plugin" in answer["milp"]
    assert "smallest total found" in answer["budget"]
    assert "smallest total found" in answer["searched"]


def test_it_refuses_what_stock_mirroring_cannot_do(answer):
    assert answer["keep"].startswith("keep needs the native plugin: not loaded")
    assert answer["optimizer"].startswith("optimizer needs the native plugin: not loaded")


def test_mirror_plans_have_segments(answer):
    assert answer["largest_segment_bytes"] > 1 << 19


def test_operators_of_the_plugin_ask_for_it(monkeypatch):
    from memonger.mx import plugin as native
    from memonger.mx.load import symbol_from_json
    from memonger.util.errors import PluginMissing

    def missing():
        raise PluginMissing("it was not built")
    monkeypatch.setattr(native, "load", missing)
    with pytest.raises(PluginMissing, match="not built"):
        symbol_from_json('{"nodes": [{"op": "memonger_gelu", "name": "a", "inputs": []}], '
                         '"arg_nodes": [], "heads": [[0, 0, 0]]}')
