"""Networks with the user's own ``force_mirroring``, and with names that look like labels."""
from __future__ import annotations

import json
import random

import mxnet as mx
import pytest
import strategies
from mx.random_symbols import random_symbol

import memonger
from memonger.graph.in_use import effective_ops
from memonger.mx.capture.record import read
from memonger.mx.check.verify import verify
from memonger.mx.symbol.common_subexpressions import symbol_text
from memonger.util.errors import InfeasibleBudget

ENDINGS = ("#1", "@2", "~2", "\\", "\t", "\n", "$", '"', "é", "[0]")


def marked(symbol, seed, share=0.4):
    """Random marks of the user's on the ops; the plugin refuses those of random ones."""
    draw = random.Random(seed)
    document = json.loads(symbol.tojson())
    for node in document["nodes"]:
        if node["op"] not in ("null", "Dropout") and draw.random() < share:
            node.setdefault("attrs", {})["__force_mirroring__"] = draw.choice(
                ["True", "True", "False"])
    return mx.sym.load_json(symbol_text(document))


def renamed(symbol, seed):
    """Ops with odd names, some like the labels of others."""
    draw = random.Random(seed)
    document = json.loads(symbol.tojson())
    before = "op"
    for node in document["nodes"]:
        if node["op"] == "null":
            continue
        if draw.random() < 0.7:
            node["name"] = draw.choice([node["name"], before]) + draw.choice(ENDINGS)
        before = node["name"]
    return mx.sym.load_json(symbol_text(document))


def run_again(plan):
    return {plan.graph.ops[op].name for op in plan.schedule.recomputed()}


def plan_and_check(symbol, shapes, budget):
    """A plan for the budget, or for what is said to be the least; its pool is true."""
    try:
        plan = memonger.plan(symbol, budget=budget, time_limit=0.2, shapes=shapes)
    except InfeasibleBudget as error:
        plan = memonger.plan(symbol, budget=error.minimum_bytes, time_limit=0.2, shapes=shapes)
        assert plan.total_bytes <= error.minimum_bytes
    assert not [note for note in plan.notes if "predicted" in note]
    assert read(plan.symbol, shapes).pool_bytes == plan.pool_bytes
    assert memonger.strip(plan.symbol).tojson() == symbol.tojson()
    return plan


@pytest.mark.parametrize("seeds", strategies.batches(range(400, 402), range(500, 540)))
def test_random_networks_have_true_pools(seeds):
    for seed in seeds:
        symbol, shapes = random_symbol(seed)
        odd = seed % 2 == 1
        changed = renamed(marked(symbol, seed), seed) if odd else marked(symbol, seed)
        for budget in ("90%", "80%", "1B"):
            plan = plan_and_check(changed, shapes, budget)
        assert verify(plan.symbol, memonger.strip(changed) if odd else symbol, shapes).identical


def test_the_marks_are_kept_and_overruled():
    x = mx.sym.var("data")
    for index in range(4):
        x = mx.sym.FullyConnected(x, num_hidden=16, name="fc%d" % index)
        x = mx.sym.tanh(x, name="tanh%d" % index, attr={
            "force_mirroring": "False" if index == 2 else "True"})
    net, shapes = mx.sym.MakeLoss(x, name="loss"), {"data": (64, 16)}
    plan = memonger.plan(net, variants="none", time_limit=0.3, shapes=shapes)
    assert "tanh2" not in run_again(plan)
    assert {"tanh0", "tanh1"} <= run_again(plan)
    plan = memonger.plan(net, variants="none", keep=["tanh0"], recompute=["tanh2"],
                         time_limit=0.3, shapes=shapes)
    assert "tanh0" not in run_again(plan) and "tanh2" in run_again(plan)
    assert "tanh0_recompute1" not in [op.name for op in read(plan.symbol, shapes).graph.ops]
    every = memonger.plan(net, keep=["*"], variants="none", time_limit=0.3, shapes=shapes)
    assert every.pool_bytes == read(every.symbol, shapes).pool_bytes
    assert "tanh0_mirror" not in [op.name for op in read(every.symbol, shapes).graph.ops]


def test_a_name_is_no_pattern_where_an_op_has_it():
    x = mx.sym.relu(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4), name="relu[0]")
    plan = memonger.plan(mx.sym.MakeLoss(mx.sym.exp(x)), keep=["relu[0]"], time_limit=0.1,
                         data=(2, 4))
    assert "relu[0]" not in run_again(plan)


def blocks(mark=None):
    """Blocks that variants fuse, a mark on the first ``relu``."""
    x = mx.sym.var("data")
    for index in range(3):
        x = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=16, name="c%d" % index)
        x = mx.sym.BatchNorm(x, fix_gamma=False, name="b%d" % index)
        x = mx.sym.Activation(x, act_type="relu", name="r%d" % index, attr={
            "force_mirroring": mark} if mark and index == 0 else {})
    x = mx.sym.Pooling(x, global_pool=True, pool_type="avg", kernel=(1, 1))
    return mx.sym.MakeLoss(mx.sym.FullyConnected(x, num_hidden=4, name="fc"), name="loss")


@pytest.mark.parametrize("mark, asked", [
    ("True", {}), (None, {"recompute": ["r0"]}), ("False", {}), (None, {"keep": ["r0"]})])
def test_no_variant_takes_the_place_of_what_the_user_decided(mark, asked):
    shapes = {"data": (16, 3, 32, 32)}
    every = memonger.plan(blocks(), budget="70%", time_limit=0.5, shapes=shapes)
    plan = memonger.plan(blocks(mark), budget="70%", time_limit=0.5, shapes=shapes, **asked)
    relu = effective_ops(plan.graph, plan.schedule.variants)[plan.graph.op_index["r0"]]
    assert relu.runs and len(plan.graph.variants) < len(every.graph.variants)
    if mark == "True" or "recompute" in asked:
        assert plan.decisions["r0"] == "recompute"
    else:
        assert "r0" not in run_again(plan)
    assert not [note for note in plan.notes if "no effect" in note]
    assert verify(plan.symbol, blocks(mark), shapes).ok
