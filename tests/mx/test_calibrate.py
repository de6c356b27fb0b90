"""Prices of this CPU: measured once, kept, and said."""
from __future__ import annotations

import json
import os

import mxnet as mx
import pytest

import memonger
from memonger import errors, native
from memonger.mx.costs.models import op_class
from memonger.mx.costs.work import TensorType
from memonger.mx.profile import calibrate

SHAPES = {"data": (4, 8)}


def small_net():
    value = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="fc")
    return mx.sym.SoftmaxOutput(mx.sym.relu(value), name="softmax")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMONGER_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("MEMONGER_COSTS")
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    return tmp_path / "profiles"


@pytest.fixture
def speeds(monkeypatch):
    """A time of a matrix product instead of measured ones; lists the shapes that are asked for."""
    asked = []
    data, weight = ((1024, 1024), "float32"), ((1024, 1024), "float32")
    key = json.dumps(["FullyConnected", {"num_hidden": "1024"}, [data, weight], [data], "11"])

    def step_times(network, shapes, *_):
        asked.append(shapes)
        return {key: 1.0}

    monkeypatch.setattr(calibrate, "step_times", step_times)
    return asked


def test_a_plan_says_whose_times_it_has(cache, speeds):
    plan = memonger.plan(small_net(), method="sublinear", **SHAPES)
    assert plan.costs.startswith("roofline: this CPU, ")
    assert "times: estimated for this CPU, " in str(plan)
    reference = memonger.plan(small_net(), method="sublinear", costs="reference", **SHAPES)
    assert "times: estimated for a 10 TFLOP/s, 600 GB/s device" in str(reference)
    assert len(speeds) == 2  # small tensors and large ones, once


def test_speeds_are_measured_once_for_each_kind_of_circumstances(cache, speeds, monkeypatch):
    first = calibrate.calibrated()
    assert calibrate.calibrated() == first and len(speeds) == 2
    assert list(first.factors) == ["FullyConnected large", "matrix large"]
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert "7 threads" in calibrate.calibrated().source and len(speeds) == 4


def test_a_busy_machine_is_not_measured(cache, speeds, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (os.cpu_count() + 1.0, 0.0, 0.0))
    plan = memonger.plan(small_net(), method="sublinear", **SHAPES)
    assert "times: estimated for a common CPU, as this one is busy; " in str(plan)
    assert not speeds and not cache.exists()
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert "this CPU, " in calibrate.calibrated().source and len(speeds) == 2


@pytest.mark.parametrize("damage", [
    "", "[]", "{}", lambda data: {**data, "factors": {"relu": -1}},
    lambda data: {**data, "factors": {"relu": "fast"}}, lambda data: {**data, "facts": {}}])
def test_damaged_files_are_measured_anew(cache, speeds, damage):
    first = calibrate.calibrated()
    (file,) = cache.iterdir()
    file.write_text(damage if isinstance(damage, str)
                    else json.dumps(damage(json.loads(file.read_text()))))
    assert calibrate.calibrated() == first and len(speeds) == 4


def test_a_folder_that_cannot_be_written_does_not_matter(cache, speeds):
    cache.parent.joinpath("profiles").write_text("a file")
    assert calibrate.calibrated().factors["matrix large"] > 1


def test_every_op_of_the_network_and_its_variants_is_measured(cache, monkeypatch):
    native.load()
    measured, seconds = calibrate.step_times, {}

    def step_times(network, shapes, ctx, limit_s, runs):
        small = (1, *shapes["data"][1:2], 8, 8) if not seconds else (16, 32, 24, 24)
        found = measured(network, {"data": small}, ctx, limit_s, 1)
        seconds.update(found)
        return found

    monkeypatch.setattr(calibrate, "step_times", step_times)
    factors = calibrate.calibrated().factors
    assert "matrix" in factors and all(factor > 0 for factor in factors.values())
    ops = [json.loads(key) for key in seconds]
    classes = {name for kind, own, inputs, outputs, _ in ops for name in op_class(
        kind, own, [TensorType(tuple(shape), dtype) for shape, dtype in inputs + outputs])}
    assert set(factors) <= classes
    assert {"Convolution", "Convolution 1x1", "Convolution in groups", "_backward_Convolution",
            "memonger_bn_relu_convolution", "_backward_memonger_bn_relu_convolution",
            "memonger_mask_relu", "memonger_max_pool", "matrix", "elements",
            "elements_backward", "BatchNorm", "BatchNorm large",
            "memonger_bn_relu_convolution 1x1 large"} <= classes
    kernels = {own["kernel"] for kind, own, *_ in ops if kind == "memonger_bn_relu_convolution"}
    assert len(kernels) > 1  # larger ones have other prices than 1x1


def test_the_closest_class_prices_an_op(cache):
    from memonger.mx.costs.models import DEVICES, Roofline
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
    small, large = TensorType((LARGE_BYTES // 4 - 1,)), TensorType((LARGE_BYTES // 4,))
    cpu = Roofline(DEVICES["cpu"])
    priced = Roofline(cpu.device, {"relu": 3.0, "relu large": 5.0, "tanh": 7.0})
    for kind, data, factor in (("relu", small, 3.0), ("relu", large, 5.0), ("tanh", large, 7.0)):
        assert priced.time_s(kind, {}, [data], [data]) == pytest.approx(
            factor * cpu.time_s(kind, {}, [data], [data]))


def test_an_unknown_preset_in_the_environment_is_named(monkeypatch):
    monkeypatch.setenv("MEMONGER_COSTS", "bogus")
    with pytest.raises(errors.InputError, match="MEMONGER_COSTS is .bogus.; it names one of"):
        memonger.plan(mx.sym.tanh(mx.sym.var("data")), budget="50%", data=(2, 3))
