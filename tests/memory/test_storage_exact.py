"""The storage model against MXNet: predicted bytes are the bound executor's, to the byte."""
from __future__ import annotations

import json
import random

import pytest

mx = pytest.importorskip("mxnet")

import strategies  # noqa: E402
from mx.random_symbols import random_recompute, random_symbol  # noqa: E402
from reference.judge import validate  # noqa: E402

from memonger import native  # noqa: E402
from memonger.graph.schedule import expand, expand_in_part  # noqa: E402
from memonger.memory.storage import plan_storage  # noqa: E402
from memonger.mx.capture.record import read  # noqa: E402
from memonger.mx.symbol.planned_symbol import apply_recompute, mark_storage  # noqa: E402

pytestmark = pytest.mark.skipif(not native.available(), reason="the plugin is not built")


def compare(seed):
    rng = random.Random(seed)
    symbol, shapes = random_symbol(seed, rng.randint(3, 25))
    grad_req = rng.choice(("write", "write", "add"))
    with native.switched(recompute=True, storage=False):
        stock = read(symbol, shapes, grad_req=grad_req)
    graph = stock.graph
    unplanned = plan_storage(graph, expand(graph, {}), "stock")
    assert (unplanned.printed_bytes, unplanned.pool_bytes) == (
        stock.printed_bytes, stock.pool_bytes), seed
    again = random_recompute(graph, seed)
    planned = mx.sym.load_json(apply_recompute(symbol.tojson(), graph, again))
    schedule = expand_in_part(graph, again)
    for model in ("stock", "best", "arena"):
        with native.switched(True, storage=model != "stock", arena=model == "arena"):
            asked = mx.sym.load_json(mark_storage(planned.tojson()))
            bound = read(asked, shapes, grad_req=grad_req)
        found = plan_storage(graph, schedule, model)
        assert found.pool_bytes == bound.pool_bytes, (seed, model)
        if model == "stock":
            assert found.printed_bytes == bound.printed_bytes, seed
        assert [s.op for s in schedule.steps] == [s.op for s in found.program.steps]
        assert [op.kind for op in bound.graph.ops] == \
            [graph.ops[step.op].kind for step in schedule.steps]
    assert [p for p in validate(graph, schedule, storage="arena", pool_bytes=found.pool_bytes)
            if "claims" in p.kind.value] == []


@pytest.mark.parametrize("seeds", strategies.batches(range(40), range(1000, 2000)))
def test_random_networks(seeds):
    for seed in seeds:
        compare(seed)


def test_debug_str_prints_the_printed_bytes():
    shapes = {"data": (200000, 6)}
    net = mx.sym.FullyConnected(mx.sym.exp(mx.sym.var("data")), num_hidden=9, name="fc")
    with native.switched(recompute=True, storage=False):
        captured = read(net, shapes)
        executor = net.simple_bind(mx.cpu(), grad_req="write", **shapes)
    found = plan_storage(captured.graph, expand(captured.graph, {}), "stock")
    assert "Total %d MB allocated" % (found.printed_bytes >> 20) in executor.debug_str()
    assert found.printed_bytes >> 20 >= 6
    assert json.loads(net.tojson())["nodes"]
