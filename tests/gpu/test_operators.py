"""The operators' GPU code against their CPU code and against MXNet, operator by operator.

Three times: with kernels emulated on the CPU (always), on a pretended GPU under mxnet-cu112
(``-m slow``), on a device (``-m gpu``).
"""
from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from ops.runner import Case, call, data, error_against, run, same_bits
from ops.test_exact import BATCH_NORM, PAIRS, SHAPES, pooling

EXACT = [name for name in PAIRS if "norm" not in name and name != "dropout"
         and "along" not in name]
fuzzed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def renamed(result):
    """Parameters are named after the op, which has another place in a fused chain."""
    return {re.sub("op[0-9]_", "op0_", name): value for name, value in result.items()}


def on_gpu(place, case):
    """The case with our GPU code; a pretended GPU cannot run an op in front of ours."""
    # What is compared with is MXNet's own BatchNorm on a CPU, not cuDNN's.
    native = {"memonger_batch_norm_relu": "cudnn_off", "memonger_inplace_batch_norm": "cudnn_off",
              "memonger_bn_relu_convolution": "bn_cudnn_off"}
    case = replace(case, chain=[(op, {**attributes, native[op]: True} if op in native else
                                 attributes) for op, attributes in case.chain])
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
@pytest.mark.parametrize("dtype, limit", [("float32", 5e-7), ("float64", 3e-7), ("float16", 4e-3)])
def test_gelu(place, dtype, limit, grad_req):
    """One unit of the byte off at most (4.2e-7), for the CPU has another exponential; NaN and
    infinities in the same places."""
    x = np.concatenate([[np.nan, np.inf, -np.inf, 0], np.linspace(-9, 5, 1001),
                        -0.7517915 + np.linspace(-1e-3, 1e-3, 1001)])
    case = Case([("memonger_gelu", {})], shape=x.shape, dtype=dtype, grad_req=grad_req,
                arguments={"x": x}, head=np.ones(x.shape))
    found, expected = on_gpu(place, case), on_cpu(case)
    for name in expected:
        assert np.allclose(found[name], expected[name], rtol=0, atol=limit, equal_nan=True), name


# ---------------------------------------------------------------------- sums in another order
NORMS = [{"fix_gamma": False}, {"fix_gamma": True},
         {"fix_gamma": False, "eps": 2e-5, "momentum": 0.7},
         {"fix_gamma": False, "use_global_stats": True}, {"fix_gamma": False, "axis": 3}]


def check_against_float64(place, stock, ours, share=1, **fields):
    """Ours is at most ``share`` times as far from float64 as MXNet's operators."""
    exact = on_cpu(Case(stock, dtype="float64", **fields))
    for dtype, limit in (("float32", 3e-7), ("float64", 1e-12)):
        theirs = on_cpu(Case(stock, dtype=dtype, **fields))
        found = on_gpu(place, Case(ours, dtype=dtype, **fields))
        assert isinstance(found, dict), found
        errors = error_against(renamed(found), renamed(exact))
        allowed = share * max(error_against(renamed(theirs), renamed(exact)).values())
        leaky = any(attributes.get("act_type") == "leaky" for _, attributes in stock)
        # MXNet's LeakyReLU rounds its negative side to float32 in float64, too.
        assert max(errors.values()) <= max(allowed, 1e-7 if leaky else limit), (dtype, errors)


@pytest.mark.parametrize("attributes", NORMS, ids=str)
@pytest.mark.parametrize("activation", ["relu", "identity", "leaky", "elu"])
def test_batch_norm_error_against_float64(place, activation, attributes):
    if activation == "relu":
        stock = [("BatchNorm", attributes), ("relu", {})]
        ours = [("memonger_batch_norm_relu", attributes)]
    else:
        stock = [("BatchNorm", attributes)]
        if activation != "identity":
            stock.append(("LeakyReLU", {"act_type": activation, "slope": 0.25}))
        ours = [("memonger_inplace_batch_norm",
                 dict(attributes, act_type=activation, slope=0.25))]
    for grad_req, shape in (("write", (8, 6, 9, 5)), ("add", (4, 3, 5, 33))):
        check_against_float64(place, stock, ours, shape=shape, steps=2, grad_req=grad_req)


@pytest.mark.parametrize("op", ["memonger_batch_norm_relu", "memonger_inplace_batch_norm"])
def test_averages_move_as_cudnns_do(place, op):
    """On a GPU by the unbiased variance, once a step; elsewhere as MXNet's own code does."""
    case = Case([(op, {"fix_gamma": False, "momentum": 0.7})], shape=(4, 3, 5, 2), steps=2,
                device=place.device, inner=False)
    variance = data(case).astype("float32").astype("float64").var((0, 2, 3))
    if place.device == "gpu":
        variance *= 40 / 39
    found = renamed(place.call(run, case))
    assert np.allclose(found["state op0_moving_var"], 0.49 + 0.51 * variance, rtol=1e-5)


@pytest.mark.parametrize("op", ["memonger_batch_norm_relu", "memonger_inplace_batch_norm"])
def test_batch_norm_in_half_precision(place, op):
    stock = [("BatchNorm", BATCH_NORM)] + ([("relu", {})] if "relu" in op else [])
    case = {"shape": (8, 6, 9, 5)}
    exact = renamed(on_cpu(Case(stock, dtype="float64", **case)))
    theirs = error_against(renamed(on_cpu(Case(stock, dtype="float16", **case))), exact)
    found = error_against(renamed(on_gpu(place, Case([(op, BATCH_NORM)], dtype="float16",
                                                     **case))), exact)
    assert max(found.values()) <= 2 * max(theirs.values())


def test_gamma_near_zero_is_kept_apart(place):
    attributes = {"fix_gamma": False}
    gamma = np.ones(16)
    gamma[3] = 1e-9
    case = {"shape": (8, 16, 7, 7), "arguments": {"op0_gamma": gamma}}
    exact = on_cpu(Case([("BatchNorm", attributes)], dtype="float64", **case))
    found = error_against(on_gpu(place, Case([("memonger_inplace_batch_norm", attributes)],
                                             **case)), exact)
    assert max(found.values()) < 1e-6


def test_gamma_near_zero_everywhere_is_refused_with_the_reason(place):
    text = on_gpu(place, Case([("memonger_inplace_batch_norm", {"fix_gamma": False})],
                              shape=(4, 16, 5, 5), arguments={"op0_gamma": np.zeros(16)}))
    assert isinstance(text, str)
    for word in ("gamma is near zero in more than 1 of 16 channels", "op0", "spare_channels"):
        assert word in text


@pytest.mark.parametrize("attributes", [{}, {"axis": 1}, {"axis": 0, "eps": 1e-3}], ids=str)
def test_layer_norm_error_against_float64(place, attributes):
    stock, ours = [("LayerNorm", attributes)], [("memonger_layer_norm", attributes)]
    for grad_req, shape in (("write", (6, 5, 40)), ("add", (3, 70, 2)), ("null", (2, 3, 4))):
        check_against_float64(place, stock, ours, 3, shape=shape, grad_req=grad_req)
    half = error_against(on_gpu(place, Case(ours, shape=(6, 5, 32), dtype="float16")),
                         on_cpu(Case(stock, shape=(6, 5, 32), dtype="float64")))
    assert max(half.values()) < 1e-2


def test_layer_norm_with_gamma_near_zero(place):
    gamma = np.ones(32)
    gamma[[3, 20]] = 1e-9, 0
    case = {"shape": (8, 7, 32), "arguments": {"op0_gamma": gamma}}
    exact = on_cpu(Case([("LayerNorm", {})], dtype="float64", **case))
    found = on_gpu(place, Case([("memonger_layer_norm", {})], **case))
    assert max(error_against(found, exact).values()) < 1e-6
    text = on_gpu(place, Case([("memonger_layer_norm", {})], shape=(8, 7, 32),
                              arguments={"op0_gamma": np.zeros(32)}))
    assert isinstance(text, str) and "gamma is near zero in more than 2 of 32 channels" in text


# ---------------------------------------------------------------------- with a convolution
CONVOLUTION = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 4}


@pytest.mark.parametrize("grad_req", ["write", "add", "null"])
@pytest.mark.parametrize("micro_batch", [0, 3])
def test_bn_relu_convolution(place, micro_batch, grad_req):
    if not place.runs_mxnet:
        pytest.skip("the convolution is MXNet's own")
    for norm in (BATCH_NORM, {"fix_gamma": True}, {"use_global_stats": True, "fix_gamma": False}):
        stock = [("BatchNorm", norm), ("relu", {}), ("Convolution", CONVOLUTION)]
        ours = [("memonger_bn_relu_convolution", dict(CONVOLUTION, micro_batch=micro_batch,
                                                      **norm))]
        check_against_float64(place, stock, ours, shape=(8, 6, 9, 5), grad_req=grad_req, steps=2)


@pytest.mark.parametrize("grad_req", ["write", "add", "null"])
def test_split_convolution(place, grad_req):
    if not place.runs_mxnet:
        pytest.skip("the convolution is MXNet's own")
    for more in ({}, {"no_bias": True, "num_group": 2}, {"dilate": (2, 2)}):
        attributes = dict(CONVOLUTION, **more)
        check_against_float64(place, [("Convolution", attributes)],
                              [("memonger_split_convolution", attributes)], shape=(8, 6, 9, 7),
                              grad_req=grad_req, steps=2)


def test_bn_relu_convolution_makes_its_input_in_parts(place):
    if not place.launches.parent.is_dir():
        pytest.skip("launches are recorded by the pretended driver")
    place.launched()
    found = on_gpu(place, Case([("memonger_bn_relu_convolution",
                                 dict(CONVOLUTION, micro_batch=3))], shape=(8, 4, 16, 16)))
    assert isinstance(found, dict), found
    parts = [["normalise_relu", str(samples * 4), "256", "0"] for samples in (3, 3, 2)]
    norm = [["batch_norm_forward", "4", "512", "4096"]]
    gradient = [["batch_norm_backward", "4", "512", "4096"]]
    assert place.launched() == norm + parts + parts + gradient + norm + parts


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
    # forward, gradient, forward in inference: 3000 elements in blocks of 256
    assert place.launched() == [[name, "12", "256", "0"] for name in
                                ("relu_forward", "gate_backward", "relu_forward")]
    on_gpu(place, Case([("memonger_batch_norm_relu", {})], shape=(3, 7, 10, 10), steps=2))
    names = [launch[0] for launch in place.launched()]
    assert names == ["batch_norm_forward", "batch_norm_backward"] * 2 + ["batch_norm_forward"]
