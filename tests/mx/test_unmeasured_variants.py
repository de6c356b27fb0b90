"""Variants are credited with the time that a measurement on this machine gives, and no other."""
from __future__ import annotations

import os

import mxnet as mx
import pytest
from needed import needs_plugin

import memonger
from memonger.mx.calls.binding import Binding
from memonger.mx.calls.op_times import estimates
from memonger.mx.calls.opening import open_network
from memonger.mx.costs.models import DEVICES, Profile, Roofline, op_signature, roofline
from memonger.mx.rewrite.variant_graph import UNMEASURED
from memonger.plans.max_batch import MaxBatch
from memonger.plans.measurement import Measurement
from memonger.report.measured import measurement_table

pytestmark = needs_plugin
SHAPES = {"data": (8, 3, 32, 32)}


def network():
    """As MobileNet: depthwise convolutions and ``clip``."""
    x = mx.sym.var("data")
    for i, (filters, kernel, groups) in enumerate(
            [(16, 3, 1), (16, 3, 16), (32, 1, 1), *[(32, 3, 32), (32, 1, 1)] * 2]):
        x = mx.sym.Convolution(x, kernel=(kernel, kernel), pad=(kernel // 2, kernel // 2),
                               num_filter=filters, num_group=groups, no_bias=True,
                               name="conv%d" % i)
        x = mx.sym.BatchNorm(x, fix_gamma=False, name="bn%d" % i)
        x = mx.sym.clip(x, a_min=0, a_max=6, name="clip%d" % i)
    x = mx.sym.Pooling(x, global_pool=True, pool_type="avg", kernel=(1, 1))
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=10),
                                name="softmax")


def gains(costs):
    """For each kind of variant the least of its times by those of the ops that it stands for."""
    graph = open_network(network(), Binding(SHAPES), costs).offering("all").graph
    shares = {}
    for variant in graph.variants:
        own_s = sum(graph.ops[op].implementations[choice].time_s for op, choice in variant.choices)
        other_s = sum(graph.ops[op].time_s for op, _ in variant.choices)
        shares[variant.name] = min(own_s / other_s, shares.get(variant.name, 9.0))
    return shares


@pytest.fixture
def busy(tmp_path, monkeypatch):
    """A machine that other programs keep busy, of which nothing is stored."""
    monkeypatch.setenv("MEMONGER_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("MEMONGER_COSTS")
    monkeypatch.setattr(os, "getloadavg", lambda: (os.cpu_count() + 1.0, 0.0, 0.0))


def test_a_busy_machine_credits_no_variant(busy):
    assert gains("cpu")["mask_clip"] < 0.5
    shares = gains("auto")
    assert set(shares) >= {"mask_clip", "inplace_batch_norm"}
    assert all(share >= UNMEASURED - 1e-9 for share in shares.values())


def test_the_words_of_a_plan_of_a_busy_machine(busy):
    again = memonger.plan(network(), recompute=["bn1"], variants="none", time_limit=1.0, **SHAPES)
    assert again.time_is_known and "unknown" not in str(again)
    used = memonger.plan(network(), budget="85%", keep=["*"], time_limit=1.0, **SHAPES)
    assert used.schedule.variants and not used.time_is_known and used.overhead > 0
    assert str(used).count("time unknown on this machine") == 2
    assert "at this budget" not in str(used).replace("cheaper at this budget", "")
    assert repr(used).endswith("MiB, time unknown on this machine>")
    batches = MaxBatch(used.total_bytes, 2, 4, used)
    assert str(batches).endswith("(2.0 times as many, time unknown on this machine)")
    assert "predicted step time unknown on this machine" in used.to_graphviz().source
    late = Measurement(used.total_bytes, 9.0, (9.0,), "cpu(0)")
    assert "a step takes" not in measurement_table(late, predicted=used)
    assert "a step takes" in measurement_table(late, predicted=again)
    assert used._repr_html_().count("time unknown on this machine") >= 1
    measured = used.changed(costs="profile: this CPU")
    assert measured.time_is_known and "unknown" not in str(measured)


def test_recomputation_that_costs_the_same_is_preferred(busy):
    plan = memonger.plan(network(), budget="75%", time_limit=1.0, **SHAPES)
    trusting = memonger.plan(network(), budget="75%", costs="cpu", time_limit=1.0, **SHAPES)
    assert trusting.schedule.variants and trusting.overhead < -0.1
    assert plan.schedule.recomputed() and not plan.schedule.variants and plan.overhead < 0.1


def test_a_kind_that_was_measured_here_has_its_time():
    factors = {name: factor for name, factor in roofline("cpu").factors.items()
               if "batch_norm" not in name}
    shares = gains(Roofline(DEVICES["cpu"], factors, "this CPU, 1 thread"))
    assert shares["mask_clip"] < 0.5 and shares["inplace_batch_norm"] >= UNMEASURED - 1e-9


def test_a_profile_credits_what_it_measured():
    opened = open_network(network(), Binding(SHAPES), "cpu")
    graph, attributes = opened.graph, opened.form.captured.attributes
    times_s = {op_signature(graph, i, attributes): op.time_s for i, op in enumerate(graph.ops)}
    shares = gains(Profile("this CPU", times_s, roofline("cpu")))
    assert all(share >= UNMEASURED - 1e-9 for share in shares.values())


def test_a_gpu_that_nobody_measured(monkeypatch):
    monkeypatch.delenv("MEMONGER_COSTS")
    found = estimates(mx.gpu(0))
    assert found.stands_in and found.source == "roofline: reference, as this one is not measured"
    monkeypatch.setenv("MEMONGER_COSTS", "v100")
    assert not estimates(mx.gpu(0)).stands_in
