"""Marked symbols through CachedOp, which is what hybridized Gluon blocks run."""
from __future__ import annotations

import random

import mxnet as mx
import numpy as np
import pytest
from mx.random_symbols import random_recompute, random_symbol
from mx.test_variants import named, plan_with, random_plan
from strategies import batches

from memonger import native
from memonger.gluon.cached_op import as_cached_op, cached_op_reader
from memonger.graph.decisions import decisions_of
from memonger.graph.schedule import expand_in_part
from memonger.memory.storage import plan_storage
from memonger.mx.calls.binding import Binding
from memonger.mx.calls.opening import open_network
from memonger.mx.capture.binding import infer_arguments
from memonger.mx.capture.record import read
from memonger.mx.check.training_run import random_values
from memonger.mx.rewrite.apply import apply_plan_to
from memonger.mx.symbol.planned_symbol import apply_recompute

from .graphs import CONVOLUTIONS, clones, convolutions, mark
from .test_executors import CHEAP

FLAGS = {"dynamic": (), "static": (("static_alloc", True),),
         "static shape": (("static_alloc", True), ("static_shape", True))}


def train(symbol, shapes, flags, retain=False, fixed=()):
    """Outputs, gradients and aux states of two steps, and what was captured meanwhile."""
    mx.random.seed(0)
    arguments = infer_arguments(symbol, shapes)
    values = random_values(symbol, arguments)
    arrays = {name: mx.nd.array(value, dtype=value.dtype) for name, value in values.items()}
    for name in arguments.names:
        if name not in fixed:
            arrays[name].attach_grad()
    inputs = symbol.list_inputs()
    flags = list(flags)
    if flags:
        flags += [("data_indices", [inputs.index(n) for n in shapes]),
                  ("param_indices", [i for i, n in enumerate(inputs) if n not in shapes])]
    cached = mx.nd.CachedOp(symbol, flags)
    found = []
    with native.capture() as records:
        for _ in range(2):
            with mx.autograd.record():
                outputs = cached(*[arrays[name] for name in inputs])
            outputs = outputs if isinstance(outputs, list) else [outputs]
            for again in (True, False) if retain else (False,):
                mx.autograd.backward(outputs, retain_graph=again)
                found += [arrays[n].grad.asnumpy() for n in arguments.names
                          if n not in ("softmax_label", *fixed)]
            found += [o.asnumpy() for o in outputs]
    found += [arrays[n].asnumpy() for n in arguments.aux_names]
    return found, records


def same(a, b):
    return len(a) == len(b) and all(x.tobytes() == y.tobytes() for x, y in zip(a, b))


@pytest.mark.parametrize("flags", list(FLAGS))
@pytest.mark.parametrize("storage", [True, False], ids=["best", "stock"])
def test_gradients_are_the_same_and_the_pools_shrink(flags, storage):
    with native.switched(True, storage):
        plain, before = train(convolutions(), CONVOLUTIONS, FLAGS[flags])
        ours, after = train(mark(convolutions(), CHEAP), CONVOLUTIONS, FLAGS[flags])
    assert same(plain, ours)
    assert [r["part"] for r in after] == ["cached_forward", "cached_backward"]
    assert clones(after[1]) and not clones(after[0])
    assert sum(r["pool_bytes"] for r in after) < sum(r["pool_bytes"] for r in before)
    assert all(r["replayed"] for r in before + after)


@pytest.mark.parametrize("flags", list(FLAGS))
@pytest.mark.parametrize("seeds", batches(range(100, 110), range(3000, 3100)))
def test_random_networks(flags, seeds):
    """CachedOp keeps for backward what any gradient would read, asked for or not."""
    for seed in seeds:
        symbol, shapes = random_symbol(seed)
        fixed = () if seed % 2 else ("data", "softmax_label")
        requests = {n: "null" if n in fixed else "write" for n in symbol.list_arguments()}
        storage = "stock" if seed % 3 else "best"
        with native.switched(True, storage == "best"):
            graph = as_cached_op(read(symbol, shapes, grad_req=requests).graph,
                                 read(symbol, shapes).graph)
            recompute = random_recompute(graph, seed)
            schedule = expand_in_part(graph, recompute)
            if fixed:  # clones that only the gradient of the data would read are in no plan
                recompute = decisions_of(graph, schedule)
            planned = mx.sym.load_json(apply_recompute(symbol.tojson(), graph, recompute))
            plain, _ = train(symbol, shapes, FLAGS[flags], fixed=fixed)
            ours, records = train(planned, shapes, FLAGS[flags], fixed=fixed)
        assert same(plain, ours), seed
        predicted = plan_storage(graph, schedule, storage).pool_bytes
        assert predicted == sum(r["pool_bytes"] for r in records), seed
        assert all(r["replayed"] for r in records), seed


@pytest.mark.parametrize("seeds", batches(range(40, 60), range(5000, 5300)))
def test_random_requests_and_variants(seeds):
    """Any parameters may be frozen; outputs may run again, in the pool."""
    for seed in seeds:
        draw = random.Random(seed)
        symbol, shapes = random_symbol(seed, draw.choice((4, 6, 10)), chains=seed % 2 == 0)
        fixed = [name for name in symbol.list_arguments()[:-1] if draw.random() < 0.5]
        requests = {n: "null" if n in fixed else "write" for n in symbol.list_arguments()}
        opened = open_network(symbol, Binding(shapes, {}, requests), "reference",
                              cached_op_reader(shapes, {}))
        graph = opened.offering("exact").graph
        _, plan = random_plan(graph, draw, draw.choice((0.0, 0.5, 1.0)), opened.storage)
        planned = apply_plan_to(symbol, plan)
        bound = opened.runner.read(planned)
        assert opened.runner.footprint(bound, planned, plan.storage).pool_bytes == \
            plan.pool_bytes, seed
        _, records = train(planned, shapes, FLAGS["static"], fixed=fixed)
        assert sum(r["pool_bytes"] for r in records) == plan.pool_bytes, seed


@pytest.mark.parametrize("frozen", [(), ("conv_weight",)], ids=["trained", "frozen"])
def test_gradients_of_a_split_convolution_stay_in_their_order(frozen):
    """That of the weight comes first; there is none to split off where the weight is frozen."""
    net = mx.sym.Convolution(mx.sym.tanh(mx.sym.var("data")), kernel=(3, 3), num_filter=16,
                             no_bias=True, name="conv")
    net, shapes = mx.sym.MakeLoss(mx.sym.sum(net)), {"data": (2, 4, 12, 12)}
    requests = {n: "null" if n in frozen else "write" for n in net.list_arguments()}
    opened = open_network(net, Binding(shapes, {}, requests), "reference",
                          cached_op_reader(shapes, {}))
    graph = opened.offering("exact").graph
    chosen = named(graph, "split_convolution")
    assert len(chosen) == (not frozen)
    if frozen:
        return
    plan = plan_with(graph, chosen, storage=opened.storage)
    planned = apply_plan_to(net, plan)
    for fixed in ((), ("data",)):
        _, records = train(planned, shapes, FLAGS["static"], fixed=fixed)
        gradients = [node["op"] for node in records[1]["nodes"]
                     if node["op"].startswith("_backward_memonger_split_convolution")]
        assert [kind.rsplit("_", 1)[1] for kind in gradients] == \
            (["weight"] if fixed else ["weight", "data"])
        if not fixed:
            assert sum(record["pool_bytes"] for record in records) == plan.pool_bytes


@pytest.mark.parametrize("flags", list(FLAGS))
def test_ops_with_state_run_once(flags):
    """Found by random networks: a clone's state was written behind the end of CachedOp's vector."""
    x = mx.sym.sigmoid(mx.sym.var("data"), name="x")
    net = mx.sym.MakeLoss(mx.sym.tanh(mx.sym.split(x, num_outputs=2, name="split")[0], name="y"))
    marked = mark(net, {"x": "1", "split": "1", "y": "1"})
    plain, _ = train(net, {"data": (2, 4)}, FLAGS[flags])
    ours, records = train(marked, {"data": (2, 4)}, FLAGS[flags])
    assert same(plain, ours) and "split_recompute1" not in clones(records[1])


def test_a_block_so_small_that_it_is_run_without_a_graph():
    net = mx.sym.tanh(mx.sym.sigmoid(mx.sym.var("data"), name="a"), name="b")
    plain, _ = train(net, {"data": (2, 4)}, ())
    ours, _ = train(mark(net, {"a": "1", "b": "1"}), {"data": (2, 4)}, ())
    assert same(plain, ours)


@pytest.mark.parametrize("flags", list(FLAGS))
@pytest.mark.parametrize("consumers", [3, 7, 8, 20])
def test_sums_of_many_gradients(flags, consumers):
    """From eight on MXNet adds gradients in place, in some of its executors."""
    x = mx.sym.tanh(mx.sym.var("data"), name="x")
    parts = [mx.sym.sigmoid(x * float(i + 1), name="part%d" % i) for i in range(consumers)]
    net = mx.sym.MakeLoss(mx.sym.add_n(*parts, name="sum"), name="loss")
    marked = mark(net, dict.fromkeys(["x"] + ["part%d" % i for i in range(consumers)], "1"))
    plain, _ = train(net, {"data": (4, 5)}, FLAGS[flags])
    for storage in (True, False):
        with native.switched(True, storage):
            ours, _ = train(marked, {"data": (4, 5)}, FLAGS[flags])
        assert same(plain, ours)


@pytest.mark.parametrize("flags", ["dynamic", "static"])
def test_backward_twice(flags):
    plain, _ = train(convolutions(), CONVOLUTIONS, FLAGS[flags], retain=True)
    ours, _ = train(mark(convolutions(), CHEAP), CONVOLUTIONS, FLAGS[flags], retain=True)
    assert same(plain, ours)


def test_inference_runs_no_clones():
    symbol = mark(convolutions(), CHEAP)
    arguments = infer_arguments(symbol, CONVOLUTIONS)
    values = random_values(symbol, arguments)
    cached = mx.nd.CachedOp(symbol, [])
    with native.capture() as records:
        cached(*[mx.nd.array(values[n]) for n in symbol.list_inputs()]).asnumpy()
    assert [r["part"] for r in records] == ["cached_forward"]
    assert clones(records[0]) == []
    assert np.isfinite(records[0]["pool_bytes"])
