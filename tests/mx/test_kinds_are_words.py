"""What an operator is called means nothing below the frontend: same pools, same plans."""
from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest
from needed import needs_plugin

import memonger
from memonger.graph.decisions import decisions_of
from memonger.graph.schedule import expand
from memonger.memory.storage import STORAGES, never_written_bytes, plan_storage
from memonger.solve import Options, solve

pytest.importorskip("mxnet")
pytestmark = needs_plugin

#: Options, and a budget as a share of the unplanned pool.
NETWORKS = {"resnet18": ({"image": 64}, 0.7), "googlenet": ({"image": 64}, 0.7),
            "attention_small": ({}, 0.9), "lstm_lm_35": ({}, 0.99)}


def graph_of(network):
    from memonger.mx.calls.binding import Binding
    from memonger.mx.calls.opening import open_network
    from memonger.zoo import nets
    net = nets.build(network, 4, **NETWORKS[network][0])
    return open_network(net.symbol, Binding(net.shapes), "reference").offering("exact").graph


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_renamed_operators_have_the_same_pools_and_plans(network):
    graph = graph_of(network)
    words = replace(graph, ops=tuple(replace(op, kind="op") for op in graph.ops))
    again = expand(graph, {op: {} for op, o in enumerate(graph.ops)
                           if o.recomputable and op % 2 == 0})
    for storage in STORAGES:
        for schedule in (expand(graph, {}), again):
            plans = [plan_storage(g, schedule, storage) for g in (graph, words)]
            assert plans[0].pool_bytes == plans[1].pool_bytes, storage
            if storage == "stock":
                assert never_written_bytes(graph, plans[0]) == never_written_bytes(words, plans[1])
    most = plan_storage(graph, expand(graph, {}), "arena").pool_bytes
    options = Options(storage="arena", variants="exact", time_limit_s=0.2)
    found = [solve(g, int(most * NETWORKS[network][1]), "auto", options) for g in (graph, words)]
    assert found[0].schedule == found[1].schedule
    assert decisions_of(graph, found[0].schedule) == decisions_of(words, found[1].schedule)


ROOMS = ("util", "graph", "memory", "plans", "solve", "report")


def texts_of(source):
    """Values of all text literals."""
    return {node.value for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_no_room_below_the_frontends_names_an_operator():
    import mxnet as mx
    names = {name for name in mx.operator.get_all_registered_operators()
             if name != name.lower() or name.startswith(("_", "memonger_"))}
    assert {"Convolution", "_grad_add", "Custom", "memonger_gelu"} <= names
    package = Path(memonger.__file__).parent
    for room in ROOMS:
        for path in (package / room).rglob("*.py"):
            assert not texts_of(path.read_text()) & names, path
    for path in (package.parent / "plugins" / "core").rglob("*.[ch]*"):
        assert not set(re.findall(r'"(\w+)"', path.read_text())) & names, path
