"""Reading what only the whole graph shows: copies between devices, ops of the same name."""
from __future__ import annotations

import json
import random

import mxnet as mx
import pytest

import memonger
from memonger import native
from memonger.graph.schedule import expand, expand_in_part
from memonger.memory.storage import plan_storage
from memonger.mx.capture.record import read
from memonger.mx.symbol.planned_symbol import apply_recompute
from memonger.util.errors import BindError
from mx.random_symbols import random_recompute, random_symbol

PLACES = {"one": mx.cpu(0), "two": mx.cpu(1)}


def over_two_devices(seed: int):
    """A random symbol whose ops are spread over two devices, parameters with their ops."""
    symbol, shapes = random_symbol(seed)
    rng = random.Random(seed)
    for _ in range(20):
        document = json.loads(symbol.tojson())
        nodes, group = document["nodes"], "one"
        for node in nodes:
            if node["op"] == "null":
                continue
            if rng.random() < 0.3:
                group = rng.choice(sorted(PLACES))
            node.setdefault("attrs", {})["__ctx_group__"] = group
            for source, _, _ in node["inputs"]:
                if nodes[source]["op"] == "null":
                    nodes[source].setdefault("attrs", {}).setdefault("__ctx_group__", group)
        spread = mx.sym.load_json(json.dumps(document))
        try:
            graph = read(spread, shapes, group2ctx=PLACES).graph
        except BindError:  # a gradient for two devices, which MXNet refuses
            continue
        if any(op.kind == "_CrossDeviceCopy" for op in graph.ops):
            return spread, shapes
    return pytest.skip("no placement that MXNet takes")


@pytest.mark.parametrize("storage", ["stock", "best"])
@pytest.mark.parametrize("seed", [*range(15), *(
    pytest.param(seed, marks=pytest.mark.slow) for seed in range(100, 200))])
def test_bytes_over_two_devices(seed: int, storage: str) -> None:
    symbol, shapes = over_two_devices(seed)
    with native.switched(True, storage == "best"):
        graph = read(symbol, shapes, group2ctx=PLACES).graph
        for trial in range(2):
            recompute = random_recompute(graph, 10 * seed + trial)
            schedule = expand_in_part(graph, recompute)
            planned = mx.sym.load_json(apply_recompute(symbol.tojson(), graph, recompute))
            bound = read(planned, shapes, group2ctx=PLACES)
            assert [op.kind for op in bound.graph.ops] == \
                [graph.ops[step.op].kind for step in schedule.steps]
            assert plan_storage(graph, schedule, storage).pool_bytes == bound.pool_bytes


def test_what_another_device_reads_is_kept() -> None:
    x = mx.sym.var("data")
    for index, place in enumerate(("one", "one", "two", "two")):
        with mx.AttrScope(ctx_group=place):
            x = mx.sym.tanh(mx.sym.FullyConnected(x, num_hidden=8, name="fc%d" % index),
                            name="act%d" % index)
    with mx.AttrScope(ctx_group="two"):
        net = mx.sym.MakeLoss(x, name="loss")
    graph = read(net, {"data": (4, 8)}, group2ctx=PLACES).graph
    reasons = {op.name: op.not_recomputable_because for op in graph.ops if not op.is_backward}
    assert any(op.kind == "_CrossDeviceCopy" for op in graph.ops)
    assert reasons["act1"] == "another device reads it"
    assert {n for n, why in reasons.items() if why == "another device reads it"} == {"act1"}
    assert not reasons["fc0"] and not reasons["act2"]
    plan = memonger.plan(net, group2ctx=PLACES, time_limit=0.3, shapes={"data": (4, 8)})
    assert read(plan.symbol, {"data": (4, 8)}, group2ctx=PLACES).pool_bytes == plan.pool_bytes


def test_ops_of_the_same_name_all_run_once() -> None:
    x = mx.sym.var("data")
    for index in range(3):
        x = mx.sym.FullyConnected(x, num_hidden=8, name="fc%d" % index)
        x = mx.sym.tanh(x, name="act" if index != 1 else "other")
    net = mx.sym.MakeLoss(x, name="loss")
    shapes = {"data": (4, 8)}
    graph = read(net, shapes).graph
    reasons = {op.name: op.not_recomputable_because for op in graph.ops if not op.is_backward}
    assert reasons["act"] == reasons["act~2"] == "another op has the same name"
    assert reasons["other"] == ""
    schedule = expand(graph, {graph.op_index[n]: {} for n in ("act", "other", "act~2")})
    assert [graph.ops[op].name for op in schedule.recomputed()] == ["other"]
    plan = memonger.plan(net, time_limit=0.3, shapes=shapes)
    assert read(plan.symbol, shapes).pool_bytes == plan.pool_bytes
