"""Without the native plugin memonger says what is missing; dmlc's rule works on stock MXNet."""
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
from memonger.errors import InputError, PluginMissing
net = nets.build("resnet18", 2, image=64)
searched = memonger.search_plan(net.symbol, **net.shapes)
hinted = nets.build("dmlc_resnet50", 8, image=112, hints=True)
answer = {
    "available": memonger.native.available(),
    "before": memonger.get_cost(net.symbol, **net.shapes),
    "after": memonger.get_cost(searched, **net.shapes),
    "hinted": [memonger.get_cost(s, **hinted.shapes) for s in (
        hinted.symbol, memonger.search_plan(hinted.symbol, **hinted.shapes))],
}
for name, call, options in (
        ("plan", memonger.plan, {}), ("milp", memonger.plan, {"method": "milp"}),
        ("budget", memonger.search_plan, {"budget": "1KB"}), ("estimate", memonger.estimate, {}),
        ("sweep", memonger.sweep, {}), ("max_batch", memonger.max_batch, {"budget": "1GB"})):
    try:
        call(net.symbol, **options, **net.shapes)
    except PluginMissing as caught:
        answer[name] = str(caught)
info = {}
memonger.make_mirror_plan(net.symbol, 0.5, info, **net.shapes)
answer["largest_segment_bytes"] = info["max_size"]
masked = mx.sym.MakeLoss(mx.sym.contrib.boolean_mask(mx.sym.var("data"), mx.sym.var("mask")))
try:
    memonger.search_plan(masked, data=(4, 3), mask=(4,))
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


def test_search_plan_marks_for_stock_mirroring_and_is_no_worse_than_no_marks(answer):
    assert answer["available"] is False
    assert answer["after"] < answer["before"]
    assert answer["hinted"][1] < answer["hinted"][0]
    assert BUILD_ADVICE in answer["stderr"]


@pytest.mark.parametrize("call", ["plan", "milp", "budget", "estimate", "sweep", "max_batch"])
def test_all_else_says_what_is_missing_and_how_to_get_it(answer, call):
    assert BUILD_ADVICE in answer[call]


def test_shapes_that_only_a_run_knows(answer):
    assert "known only when it runs" in answer["masked"]


def test_mirror_plans_have_segments(answer):
    assert answer["largest_segment_bytes"] > 1 << 19


def test_operators_of_the_plugin_ask_for_it(monkeypatch):
    from memonger.mx.plugin import loading as native
    from memonger.mx.rewrite.load import symbol_from_json
    from memonger.util.errors import PluginMissing

    def missing():
        raise PluginMissing("it was not built")
    monkeypatch.setattr(native, "load", missing)
    with pytest.raises(PluginMissing, match="not built"):
        symbol_from_json('{"nodes": [{"op": "memonger_gelu", "name": "a", "inputs": []}], '
                         '"arg_nodes": [], "heads": [[0, 0, 0]]}')
