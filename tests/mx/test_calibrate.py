"""Prices of this CPU: measured once, kept, and said."""
from __future__ import annotations

import json

import mxnet as mx
import pytest

import memonger
from memonger import native
from memonger.mx.profile import calibrate

SHAPES = {"data": (4, 8)}


def small_net():
    value = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="fc")
    return mx.sym.SoftmaxOutput(mx.sym.relu(value), name="softmax")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMONGER_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("MEMONGER_COSTS")
    monkeypatch.setattr(calibrate, "_is_busy", lambda: False)
    return tmp_path / "profiles"


@pytest.fixture
def speeds(monkeypatch):
    """Speeds that tests name instead of measuring; counts how often they are asked for."""
    asked = []
    monkeypatch.setattr(calibrate, "_measured",
                        lambda ctx: asked.append(ctx) or {"matrix": 2.0, "relu": 3.0})
    return asked


def test_a_plan_says_whose_times_it_has(cache, speeds):
    plan = memonger.plan(small_net(), method="sublinear", **SHAPES)
    assert plan.costs.startswith("roofline: this CPU, ")
    assert "times: estimated for this CPU, " in str(plan)
    reference = memonger.plan(small_net(), method="sublinear", costs="reference", **SHAPES)
    assert "times: estimated for a 10 TFLOP/s, 600 GB/s device" in str(reference)
    assert len(speeds) == 1


def test_speeds_are_measured_once_for_each_kind_of_circumstances(cache, speeds, monkeypatch):
    first = calibrate.calibrated()
    assert calibrate.calibrated() == first and first.factors["relu"] == 3.0 and len(speeds) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert "7 threads" in calibrate.calibrated().source and len(speeds) == 2


def test_a_busy_machine_is_not_measured(cache, speeds, monkeypatch):
    monkeypatch.setattr(calibrate, "_is_busy", lambda: True)
    plan = memonger.plan(small_net(), method="sublinear", **SHAPES)
    assert "times: estimated for a common CPU, as this one is busy; " in str(plan)
    assert not speeds and not cache.exists()
    monkeypatch.setattr(calibrate, "_is_busy", lambda: False)
    assert "this CPU, " in calibrate.calibrated().source and len(speeds) == 1


@pytest.mark.parametrize("damage", [
    "", "[]", "{}", lambda data: {**data, "factors": {"relu": -1}},
    lambda data: {**data, "factors": {"relu": "fast"}}, lambda data: {**data, "facts": {}}])
def test_damaged_files_are_measured_anew(cache, speeds, damage):
    first = calibrate.calibrated()
    (file,) = cache.iterdir()
    file.write_text(damage if isinstance(damage, str)
                    else json.dumps(damage(json.loads(file.read_text()))))
    assert calibrate.calibrated() == first and len(speeds) == 2


def test_a_folder_that_cannot_be_written_does_not_matter(cache, speeds):
    cache.parent.joinpath("profiles").write_text("a file")
    assert calibrate.calibrated().factors["matrix"] == 2.0


def test_every_op_of_the_network_and_its_variants_is_measured(cache, monkeypatch):
    native.load()
    monkeypatch.setattr(calibrate, "_SIZES", (((1, 32, 8, 8), 2), ((16, 32, 24, 24), 1)))
    monkeypatch.setattr(calibrate, "_LEAST_S", 0.0)
    ops, given = [], calibrate._factors

    def factors_of(times, expected):
        ops.extend(json.loads(key)[:2] for key in times)
        return given(times, expected)

    monkeypatch.setattr(calibrate, "_factors", factors_of)
    factors = calibrate.calibrated().factors
    assert {"Convolution", "Convolution 1x1", "Convolution in groups", "_backward_Convolution",
            "memonger_bn_relu_convolution", "_backward_memonger_bn_relu_convolution",
            "memonger_mask_relu", "memonger_max_pool", "matrix", "elements",
            "elements_backward", "BatchNorm", "BatchNorm large",
            "memonger_bn_relu_convolution 1x1 large"} <= set(factors)
    assert all(factor > 0 for factor in factors.values())
    kernels = {own["kernel"] for kind, own in ops if kind == "memonger_bn_relu_convolution"}
    assert len(kernels) > 1  # larger ones have other prices than 1x1


def test_the_closest_class_prices_an_op(cache):
    from memonger.mx.costs.models import DEVICES, Roofline
    from memonger.mx.costs.work import TensorType
    cpu = Roofline(DEVICES["cpu"])
    priced = Roofline(cpu.device, {"matrix": 2.0, "relu": 3.0, "elements": 5.0})
    data, weight = TensorType((8, 64)), TensorType((16, 64))
    out, options = TensorType((8, 16)), {"num_hidden": "16"}
    for kind, inputs, outputs, factor in (
            ("FullyConnected", [data, weight], [out], 2.0), ("relu", [data], [data], 3.0),
            ("tanh", [data], [data], 5.0), ("_backward_tanh", [data, data], [data], 1.0)):
        assert priced.time_s(kind, options, inputs, outputs) == pytest.approx(
            factor * cpu.time_s(kind, options, inputs, outputs))


def test_large_tensors_have_prices_of_their_own(cache):
    from memonger.mx.costs.models import DEVICES, LARGE_BYTES, Roofline
    from memonger.mx.costs.work import TensorType
    small, large = TensorType((LARGE_BYTES // 4 - 1,)), TensorType((LARGE_BYTES // 4,))
    cpu = Roofline(DEVICES["cpu"])
    priced = Roofline(cpu.device, {"relu": 3.0, "relu large": 5.0, "tanh": 7.0})
    for kind, data, factor in (("relu", small, 3.0), ("relu", large, 5.0), ("tanh", large, 7.0)):
        assert priced.time_s(kind, {}, [data], [data]) == pytest.approx(
            factor * cpu.time_s(kind, {}, [data], [data]))
