"""The storage model against MXNet: predicted bytes are the bound executor's, to the byte."""
from __future__ import annotations

import json
import random

import pytest

mx = pytest.importorskip("mxnet")

from mx.random_symbols import random_recompute, random_symbol  # noqa: E402
from reference.judge import validate  # noqa: E402

from memonger import native  # noqa: E402
from memonger.graph.decisions import decisions_of  # noqa: E402
from memonger.graph.schedule import expand, expand_in_part  # noqa: E402
from memonger.memory.storage import plan_storage  # noqa: E402
from memonger.mx.capture import read  # noqa: E402
from memonger.plan.planned_symbol import apply_recompute, mark_storage  # noqa: E402

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


def test_random_networks():
    for seed in range(40):
        compare(seed)


@pytest.mark.slow
def test_a_thousand_random_networks():
    for seed in range(1000, 2000):
        compare(seed)


def compare_cached_op(seed, grad_of_data):
    from memonger.api.gluon import as_cached_op
    rng = random.Random(seed)
    symbol, shapes = random_symbol(seed, rng.randint(3, 20))
    arguments = dict(zip(symbol.list_arguments(), symbol.infer_shape(**shapes)[0]))
    inputs = [n for n in arguments if n == "data" or n.endswith("label")]
    for storage in (False, True):
        with native.switched(recompute=True, storage=storage):
            requests = {n: "null" if n in inputs and not grad_of_data else "write"
                        for n in arguments}
            graph = as_cached_op(read(symbol, shapes, grad_req=requests).graph,
                                 read(symbol, shapes).graph)
            share = rng.choice((0.0, 0.5))
            again = {i: {} for i, op in enumerate(graph.ops)
                     if not op.is_backward and op.recomputable and rng.random() < share}
            schedule = expand(graph, again)
            planned = mx.sym.load_json(apply_recompute(symbol.tojson(), graph,
                                                       decisions_of(graph, schedule)))
            block = mx.gluon.SymbolBlock(planned, [mx.sym.var(n) for n in inputs])
            block.initialize()
            block.hybridize(static_alloc=True)
            arrays = [mx.nd.zeros(arguments[n]) for n in inputs]
            for array in arrays if grad_of_data else ():
                array.attach_grad()
            with native.capture() as records:
                with mx.autograd.record():
                    outputs = block(*arrays)
                mx.autograd.backward(list(outputs) if isinstance(outputs, (list, tuple))
                                     else [outputs])
                mx.nd.waitall()
        found = plan_storage(graph, schedule, "best" if storage else "stock")
        assert [r["part"] for r in records] == ["cached_forward", "cached_backward"]
        assert found.pool_bytes == sum(r["pool_bytes"] for r in records), (seed, storage)


@pytest.mark.filterwarnings("ignore:Cannot decide type:UserWarning")
@pytest.mark.parametrize("grad_of_data", [True, False])
def test_cached_ops(grad_of_data):
    # CachedOp keeps for backward what any gradient would read, asked for or not.
    for seed in range(8):
        compare_cached_op(seed, grad_of_data)


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
