"""The operators' GPU code against their CPU code and against MXNet, operator by operator.

Three times: with kernels emulated on the CPU (always), on a pretended GPU under mxnet-cu112
(``-m slow``), on a device (``-m gpu``).
"""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from ops.runner import Case, call, data, renamed, run, same_bits
from ops.test_exact import BATCH_NORM, PAIRS, SHAPES, pooling

from benchmarks.kernels import cases

EXACT = [name for name in PAIRS if "norm" not in name and name != "dropout"]
fuzzed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def on_gpu(place, case):
    """The case with our GPU code; a pretended GPU cannot run an op in front of ours."""
    return place.call(run, replace(case, device=place.device, inner=False))


def on_cpu(case):
    return call(run, replace(case, inner=False))


@pytest.mark.parametrize("grad_req", ["write", "add"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("pair", EXACT)
def test_same_bits_as_on_the_cpu(place, pair, dtype, grad_req):
    for shape in SHAPES:
        case = Case(PAIRS[pair][1], shape=shape, dtype=dtype, grad_req=grad_req)
        assert same_bits(on_gpu(place, case), on_cpu(case)) is None, shape


@pytest.mark.parametrize("pair", ["leaky relu", "relu", "relu6", "hardtanh"])
def test_infinite_and_nan_values(place, pair):
    for dtype in ("float32", "float16"):
        case = Case(PAIRS[pair][1], shape=(6, 50), values="special", dtype=dtype)
        found, expected = on_gpu(place, case), on_cpu(case)
        if pair == "relu":  # places of NaN are remembered on CPUs alone: the gradient passes
            nan = np.isnan(expected["output"])
            expected["gradient of x"][nan] = found["gradient of x"][nan]
            assert nan.any() and not np.isnan(found["gradient of x"]).any()
        assert same_bits(found, expected) is None


@pytest.mark.parametrize("pair", PAIRS)
def test_null_gradient(place, pair):
    if not place.runs_mxnet and "norm" in pair:
        pytest.skip("BatchNorm is MXNet's own")
    found = on_gpu(place, Case(PAIRS[pair][1], shape=(3, 4, 5), grad_req="null"))
    assert isinstance(found, dict) and not [name for name in found if "gradient" in name]


@fuzzed
@given(pooling())
def test_max_pool_fuzzed(place, example):
    shape, attributes, dtype, grad_req, values = example
    case = Case([("memonger_max_pool", attributes)], shape=shape, dtype=dtype, grad_req=grad_req,
                values=values)
    found, expected = on_gpu(place, case), on_cpu(case)
    if isinstance(expected, str):
        assert isinstance(found, str)
        return
    assert isinstance(found, dict), found
    assert same_bits(found, expected) is None


@pytest.mark.parametrize("kernel,bytes_per_number", [((3, 5), "nibbles"), ((4, 4), "bytes"),
                                                     ((16, 16), "words")])
def test_max_pool_formats(place, kernel, bytes_per_number):
    for attributes in ({"kernel": kernel, "stride": (1, 2)},
                       {"kernel": (1, 1), "global_pool": True}):
        for layout in ("NCHW", "NHWC"):
            case = Case([("memonger_max_pool", dict(attributes, layout=layout))],
                        shape=(2, 18, 17, 18), values="ties")
            assert same_bits(on_gpu(place, case), on_cpu(case)) is None


@pytest.mark.parametrize("grad_req", ["write", "add"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_gelu(place, dtype, grad_req):
    """One formula, and one exponential: the CPU's bits."""
    x = np.concatenate([[np.nan, np.inf, -np.inf, 0], np.linspace(-9, 5, 1001),
                        -0.7517915 + np.linspace(-1e-3, 1e-3, 1001)])
    case = Case([("memonger_gelu", {})], shape=x.shape, dtype=dtype, grad_req=grad_req,
                arguments={"x": x}, head=np.ones(x.shape))
    assert same_bits(on_gpu(place, case), on_cpu(case)) is None


# ---------------------------------------------------------------------- MXNet's own operators
CONVOLUTION = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 4}
NORMS = [{"fix_gamma": False}, {"fix_gamma": True},
         {"fix_gamma": False, "eps": 2e-5, "momentum": 0.7},
         {"fix_gamma": False, "use_global_stats": True}, {"fix_gamma": False, "axis": 3}]


@pytest.mark.parametrize("grad_req", ["write", "add", "null"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norm", NORMS, ids=str)
def test_batch_norm_and_relu_are_mxnets(place, norm, dtype, grad_req):
    """The same bits, averages among them, as the two operators on that device."""
    if not place.runs_mxnet:
        pytest.skip("BatchNorm is MXNet's own")
    case = {"shape": (8, 6, 9, 5), "dtype": dtype, "grad_req": grad_req, "steps": 2,
            "device": place.device, "inner": False}
    stock = place.call(run, Case([("BatchNorm", norm), ("relu", {})], **case))
    ours = place.call(run, Case([("memonger_batch_norm_relu", norm)], **case))
    assert same_bits(renamed(ours), renamed(stock)) is None


@pytest.mark.parametrize("grad_req", ["write", "add", "null"])
@pytest.mark.parametrize("micro_batch", [0, 3])
def test_with_a_convolution_too(place, micro_batch, grad_req):
    """In one part, where the buffer has room for it or not."""
    if not place.runs_mxnet:
        pytest.skip("the convolution is MXNet's own")
    for norm in (BATCH_NORM, {"fix_gamma": True}, {"use_global_stats": True, "fix_gamma": False}):
        case = {"shape": (8, 6, 9, 5), "grad_req": grad_req, "steps": 2, "device": place.device,
                "inner": False}
        stock = place.call(run, Case([("BatchNorm", norm), ("relu", {}),
                                      ("Convolution", CONVOLUTION)], **case))
        ours = place.call(run, Case([("memonger_bn_relu_convolution", {
            **CONVOLUTION, **norm, "micro_batch": micro_batch})], **case))
        assert isinstance(ours, dict), ours
        for name, value in renamed(stock).items():
            # MXNet's executor adds the gradients of a fused chain elsewhere.
            assert np.allclose(renamed(ours)[name], value, rtol=1e-5, atol=1e-6), name


@pytest.mark.parametrize("grad_req", ["write", "add", "null"])
def test_split_convolution(place, grad_req):
    if not place.runs_mxnet:
        pytest.skip("the convolution is MXNet's own")
    for more in ({}, {"no_bias": True, "num_group": 2}, {"dilate": (2, 2)}):
        case = {"shape": (8, 6, 9, 7), "grad_req": grad_req, "steps": 2}
        stock = on_cpu(Case([("Convolution", dict(CONVOLUTION, **more))], **case))
        ours = on_gpu(place, Case([("memonger_split_convolution", dict(CONVOLUTION, **more))],
                                  **case))
        for name, value in stock.items():
            assert np.allclose(ours[name], value, rtol=1e-5, atol=1e-5), name


# ---------------------------------------------------------------------- random numbers
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_dropout_uses_one_mask_both_ways(place, dtype):
    shape = (5, 3, 6, 7)
    case = Case([("memonger_mask_dropout", {"p": 0.4})], shape=shape, dtype=dtype,
                values="positive")
    found = on_gpu(place, case)
    factor = np.asarray(np.float32(1) / (np.float32(1) - np.float32(0.4))).astype(dtype)
    kept = found["output"] != 0
    head = np.random.RandomState(case.seed + 5).randn(*shape).astype(dtype)
    assert np.array_equal(found["output"],
                          data(case).astype(dtype) * np.where(kept, factor, 0).astype(dtype))
    assert np.array_equal(found["gradient of x"],
                          head * np.where(kept, factor, 0).astype(dtype))


def test_dropout_passes_in_inference(place):
    case = Case([("memonger_mask_dropout", {"p": 0.4})], shape=(5, 40), train=False,
                grad_req="null")
    assert same_bits(on_gpu(place, case), on_cpu(case)) is None


def test_kernels_are_launched_over_all_elements(place):
    if not place.launches.parent.is_dir():
        pytest.skip("launches are recorded by the pretended driver")
    place.launched()
    on_gpu(place, Case([("memonger_mask_relu", {})], shape=(3, 1000)))
    # forward, gradient, forward in inference: eight elements a thread
    assert place.launched() == [[name, "2", "256", "0", "0"] for name in
                                ("relu_forward", "leaky_relu_backward", "relu_forward")]


def test_launches_are_those_of_the_benchmark(place):
    """What ``benchmarks.kernels`` checks is what operators start: kernels and blocks."""
    if not place.launches.parent.is_dir():
        pytest.skip("launches are recorded by the pretended driver")
    place.launched()
    shape, count = (3, 5, 9, 11), 3 * 5 * 9 * 11
    pooling = cases.Pooling(15, (1, 9, 11), (1, 3, 3), (1, 2, 2), (0, 1, 1))
    for op, attributes, expected in (
            ("memonger_mask_leaky_relu", {},
             cases.activations(count, "float32", cases.WRITE, False)),
            ("memonger_mask_dropout", {"p": 0.3},
             cases.dropout(count, "float32", cases.WRITE, False)),
            ("memonger_gelu", {}, cases.gelu(count, "float32", cases.WRITE, False)),
            ("memonger_max_pool", {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)},
             cases.max_pool(pooling, "float32", cases.WRITE))):
        on_gpu(place, Case([(op, attributes)], shape=shape))
        with np.errstate(invalid="ignore", over="ignore"):  # infinity times 0
            blocks = {case.kernel: case.blocks for case in expected}
        launched = place.launched()
        assert len(launched) >= 2
        for kernel, found, threads, shared, _ in launched:
            assert (int(found), threads, shared) == (blocks[kernel], "256", "0")
