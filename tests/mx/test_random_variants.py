"""Random networks, dtypes and requests with random variants and clones: bytes, order, gradients."""
from __future__ import annotations

import random
from typing import Any

import mxnet as mx
import pytest
import strategies
from needed import needs_plugin

import memonger
from memonger import native
from memonger.mx.calls.binding import Binding
from memonger.mx.calls.opening import open_network
from memonger.util.errors import BindError, InputError
from mx.random_symbols import random_symbol
from mx.test_variants import check_prediction

pytestmark = needs_plugin


def stock_bind(symbol: mx.sym.Symbol, shapes: Any, types: Any, requests: Any) -> None:
    native.disable()
    try:
        symbol.simple_bind(mx.cpu(), grad_req=requests, type_dict=types, **shapes)
    finally:
        native.enable()


def check(seed: int) -> None:
    draw = random.Random(seed)
    symbol, shapes = random_symbol(seed, draw.choice((6, 12, 20)), chains=seed % 2 == 0)
    types = draw.choice((None, None, {"data": "float64"}))
    requests = draw.choice(("write", "write", "add", "null", {
        name: draw.choice(("write", "add", "null")) for name in symbol.list_arguments()}))
    try:
        opened = open_network(symbol, Binding(shapes, types, requests), "reference")
    except InputError:
        return  # MXNet cannot bind it: dtypes that do not go together
    except BindError:
        with pytest.raises((mx.MXNetError, RuntimeError)):  # nor by itself
            stock_bind(symbol, shapes, types, requests)
        return
    exact = draw.random() < 0.5
    graph = opened.offering("exact" if exact else "all").graph
    for planned in check_prediction(symbol, opened, graph, draw, (0.5, 1.0)):
        if exact and requests != "null":
            assert memonger.verify(planned, symbol, shapes=shapes, type_dict=types,
                                   grad_req=requests).identical


@pytest.mark.parametrize("seeds", strategies.batches(range(40), range(1000, 5000)))
def test_random_variants_of_random_networks(seeds: range) -> None:
    for seed in seeds:
        check(seed)
