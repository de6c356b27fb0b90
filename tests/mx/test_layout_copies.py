"""Copies that stock MXNet keeps between MKLDNN's layouts and others, beside the process."""
from __future__ import annotations

import json
from pathlib import Path

import mxnet as mx
import pytest
from forked import python
from mxnet.gluon import nn
from needed import needs_plugin

import memonger
from memonger.mx.capture.record import read
from memonger.mx.memory.mkldnn import stock_copies

from .counted_copies import plain, spelled

pytestmark = needs_plugin
#: What a process takes for MKLDNN's own objects and threads, whatever the network.
OWN_BYTES = 64 << 20


def taken(name, spelling, **options):
    """Estimated and measured bytes of a network in a process of its own with MKLDNN on."""
    done = python(str(Path(__file__).with_name("counted_copies.py")), name, json.dumps(options),
                  spelling, MXNET_MKLDNN_ENABLED="1", MEMONGER_COSTS="")
    assert done.returncode == 0, done.stdout[-2000:]
    return [int(word) for word in done.stdout.rsplit("bytes:", 1)[1].split()]


@pytest.mark.parametrize("spelling", ["relu", "clip"])
def test_other_spellings_of_relu_take_what_is_estimated_more(spelling):
    least, least_taken = taken("plain", "Activation")
    total, bytes_taken = taken("plain", spelling)
    assert total - least > 40 << 20
    assert abs((bytes_taken - least_taken) - (total - least)) < 0.1 * bytes_taken


@pytest.mark.parametrize("spelling, maps", [("Activation", 0), ("relu", 10), ("clip", 5),
                                            ("sigmoid", 10), ("swish", 10)])
def test_copies_are_those_that_a_process_allocates(spelling, maps, monkeypatch):
    """Counted once for each spelling, by what stock MXNet asks the system for and keeps."""
    monkeypatch.setenv("MXNET_MKLDNN_ENABLED", "1")
    monkeypatch.delenv("MEMONGER_COSTS", raising=False)
    network = spelled(plain(2, spelling), spelling)
    estimate = memonger.estimate(network, data=(4, 3, 24, 24))
    assert estimate.by_category.get("layout_copies", 0) == maps * 4 * 32 * 24 * 24 * 4


def test_a_plan_that_only_rids_the_step_of_copies_is_not_called_not_needed(monkeypatch):
    """Unplanned the network takes more than the budget, whatever its pool takes."""
    monkeypatch.setenv("MXNET_MKLDNN_ENABLED", "1")
    monkeypatch.delenv("MEMONGER_COSTS", raising=False)
    network = spelled(plain(2, "relu"), "relu")
    planned = memonger.plan(network, budget="100%", variants="none", data=(4, 3, 24, 24))
    assert planned.status.value == "not_needed"
    planned = memonger.plan(network, budget="95%", variants="none", data=(4, 3, 24, 24))
    assert planned.baseline_total_bytes > planned.budget_bytes >= planned.total_bytes
    assert planned.status.value == "optimal" and not planned.schedule.recomputed()
    assert "the time of copies in other layouts" in str(planned)


@pytest.mark.slow
@pytest.mark.parametrize("name, options", [
    ("resnet50", {"batch": 8, "image": 128}), ("densenet121", {"batch": 4}),
    ("vgg11_bn", {"batch": 8, "image": 96}), ("mobilenet_v2", {"batch": 16, "image": 128}),
    ("inception_v3", {"batch": 2}), ("squeezenet1_0", {"batch": 4})])
def test_estimates_of_the_zoo_are_within_a_tenth(name, options):
    for spelling in ("Activation", "relu", "clip", "sigmoid"):
        total, measured = taken(name, spelling, **options)
        assert -0.1 * total <= measured - total <= 0.1 * total + OWN_BYTES, spelling


def chain(*ops):
    x = mx.sym.Convolution(mx.sym.var("data"), num_filter=8, kernel=(3, 3), name="conv")
    for op in ops:
        x = op(x)
    return mx.sym.Pooling(x, global_pool=True, pool_type="avg", kernel=(1, 1))


def test_what_is_copied_for_which_op():
    """An array that is written in place keeps its layout, and is copied twice."""
    graph, bytes_of = read(chain(mx.sym.sigmoid), {"data": (2, 3, 10, 10)}), 2 * 8 * 8 * 8 * 4
    names = [op.name for op in graph.graph.ops]
    sigmoid, gradient = (next(i for i, op in enumerate(graph.graph.ops) if op.kind == kind)
                         for kind in ("sigmoid", "_backward_sigmoid"))
    assert graph.default_layout[sigmoid] and not graph.default_layout[names.index("conv")]
    copies = stock_copies(graph.graph, graph.default_layout, {})
    assert copies[sigmoid] == bytes_of and copies[names.index("conv")] == 0
    copies = stock_copies(graph.graph, graph.default_layout, {(sigmoid, 0): 0})
    assert copies[sigmoid] == 2 * bytes_of
    assert copies[gradient] >= bytes_of  # of its output, which is in the convolution's layout


def test_blocks_keep_copies_where_all_is_static(monkeypatch):
    from memonger.mx.calls import opening, runner
    for module in (opening, runner):
        monkeypatch.setattr(module, "mkldnn_is_on", lambda: True)
    monkeypatch.delenv("MEMONGER_COSTS", raising=False)

    def copies(**flags):
        block = nn.HybridSequential()
        block.add(*[layer for _ in range(3) for layer in (
            nn.Conv2D(8, 3, padding=1), nn.HybridLambda(lambda F, x: F.relu(x)))], nn.Dense(2))
        block.initialize()
        block.hybridize(**flags)
        plan = memonger.gluon.plan(block, (2, 3, 8, 8), budget="100%", costs="cpu")
        return plan.baseline_fixed_bytes["layout_copies"]
    array = 2 * 8 * 8 * 8 * 4
    assert copies(static_alloc=True, static_shape=True) > 6 * array
    assert 0 < copies() == copies(static_alloc=True) <= 3 * array
