"""No call takes more than 20 times its ``time_limit``, whatever it searches for."""
from __future__ import annotations

import contextlib
import time

import mxnet as mx
import pytest
from mxnet.gluon import nn
from needed import needs_plugin

import memonger
from memonger.util.errors import InfeasibleBudget
from memonger.zoo.nets import build

pytestmark = needs_plugin
LIMIT_S = 2.0
#: The others search for minutes on a busy machine.
QUICK = ("refused", "block")


@pytest.fixture(scope="module")
def net():
    return build("squeezenet1_0", 4)


def block():
    layers = nn.HybridSequential()
    for _ in range(12):
        layers.add(nn.Conv2D(16, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"))
    layers.initialize()
    layers.hybridize()
    layers(mx.nd.ones((2, 16, 16, 16)))
    return layers


CALLS = {
    "plan": lambda net: memonger.plan(net.symbol, "50%", shapes=net.shapes, time_limit=LIMIT_S),
    "all variants": lambda net: memonger.plan(net.symbol, "30%", variants="all",
                                              shapes=net.shapes, time_limit=LIMIT_S),
    "least memory": lambda net: memonger.plan(net.symbol, shapes=net.shapes, time_limit=LIMIT_S),
    "refused": lambda net: memonger.plan(net.symbol, "3%", shapes=net.shapes, time_limit=LIMIT_S),
    "sweep": lambda net: memonger.sweep(net.symbol, ["80%", "50%", "3%"], shapes=net.shapes,
                                        time_limit=LIMIT_S),
    "max_batch": lambda net: memonger.max_batch(net.symbol, "200MB", limit=64,
                                                shapes=net.shapes, time_limit=LIMIT_S),
    "block": lambda net: memonger.gluon.plan(block(), (2, 16, 16, 16), budget="50%",
                                             time_limit=LIMIT_S)}


@pytest.mark.parametrize("call", [
    pytest.param(call, marks=() if call in QUICK else pytest.mark.slow) for call in CALLS])
def test_calls_end(net, call):
    begun_s = time.process_time()  # other processes' work is not counted
    with contextlib.suppress(InfeasibleBudget):
        CALLS[call](net)
        assert call != "refused"
    assert time.process_time() - begun_s < 20 * LIMIT_S
