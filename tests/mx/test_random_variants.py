"""Random networks, dtypes and requests with random variants and clones: bytes, order, gradients."""
from __future__ import annotations

import random

import pytest

import memonger
from memonger import native
from memonger.decisions import graph_in_use
from memonger.errors import InputError
from memonger.mx.apply import apply_plan_to
from memonger.plan import Status
from memonger.schedule import Schedule, expand
from memonger.session import open_session
from memonger.solve.build import build_plan
from memonger.solve.options import Options

from .random_symbols import random_symbol
from .test_variants import choose, running, same_order

pytestmark = pytest.mark.skipif(not (native.folder() / "libmemonger_mxnet.so").exists(),
                                reason="the plugin is not built")


def check(seed: int) -> None:
    draw = random.Random(seed)
    symbol, shapes = random_symbol(seed, draw.choice((6, 12, 20)), chains=seed % 2 == 0)
    types = draw.choice((None, None, {"data": "float64"}))
    requests = draw.choice(("write", "write", "add", "null", {
        name: draw.choice(("write", "add", "null")) for name in symbol.list_arguments()}))
    try:
        opened = open_session(symbol, shapes, types, requests, None, "reference", None, None, None)
    except InputError:
        return  # MXNet cannot bind it: dtypes that do not go together
    exact = draw.random() < 0.5
    graph = opened.with_variants(exact_only=exact).graph
    for share in (0.5, 1.0):
        chosen = choose(graph, draw, share)
        in_use = graph_in_use(graph, Schedule((), chosen))
        recompute = {i: {} for i, op in enumerate(in_use.ops)
                     if op.recomputable and op.outputs and draw.random() < 0.4}
        schedule = Schedule(expand(in_use, recompute).steps, chosen)
        plan = build_plan(graph, schedule, "random", Options(storage=opened.storage), None,
                          Status.FEASIBLE)
        planned = apply_plan_to(symbol, plan)
        bound = opened.read(planned)
        same_order(graph, schedule, bound.graph)
        assert bound.pool_bytes == plan.pool_bytes
        assert len(bound.graph.ops) == running(in_use, schedule)
        assert memonger.strip(planned).tojson() == symbol.tojson()
        if exact and requests != "null":
            assert memonger.verify(planned, symbol, shapes=shapes, type_dict=types,
                                   grad_req=requests).identical


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_random_variants_of_random_networks(first: int) -> None:
    for seed in range(first, first + 10):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 5000, 250))
def test_random_variants_of_thousands_of_networks(first: int) -> None:
    for seed in range(first, first + 250):
        check(seed)
