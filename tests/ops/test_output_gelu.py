"""Gelu from its output and a byte: as close to the truth as MXNet's, which keeps the input, too."""
from __future__ import annotations

import math

import numpy as np
import pytest
from needed import needs_plugin

from memonger import native
from ops.runner import Case, call, run

pytestmark = needs_plugin

OURS = [("memonger_gelu", {})]
STOCK = [("LeakyReLU", {"act_type": "gelu"})]
#: The largest error of a float32 derivative.
SLOPE = 2.4e-7
#: Where gelu is least.
MINIMUM = -0.75179152469356447
SPECIAL = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-42, -1e-42, 1e20, -1e20, 3e38, -3e38, -13.5, -20]


def inputs() -> np.ndarray:
    """Everywhere, and densely where the output hardly tells the input."""
    near = [MINIMUM + np.linspace(-width, width, 20001) for width in (1e-4, 1e-3, 1e-2, 0.3)]
    return np.concatenate([np.linspace(-13, 13, 40001), *near])


def exact(x: np.ndarray):
    """Gelu and its derivative."""
    x = x.astype("float64")
    share = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in x])
    return x * share, share + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def results(chain, x, dtype, mkldnn=False, grad_req="write", inner=True):
    found = call(run, Case(chain, shape=x.shape, dtype=dtype, arguments={"x": x}, inner=inner,
                           grad_req=grad_req, head=np.ones(x.shape)),
                 mkldnn=mkldnn)
    assert isinstance(found, dict), found
    return found


# MXNet computes in float32 whatever the dtype, and so exact is our float64.
@pytest.mark.parametrize("dtype, value, slope", [("float32", 3e-7, SLOPE),
                                                 ("float64", 1e-8, 1.2e-7),
                                                 ("float16", 4e-3, 6e-4)])
def test_error_against_float64(dtype, value, slope):
    x = inputs().astype(dtype)
    y, derivative = exact(x)
    found = results(OURS, x, dtype)
    assert np.abs(found["output"] - y).max() < value
    assert np.abs(found["gradient of x"] - derivative).max() < slope


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("mkldnn", [False, True])
def test_error_is_about_mxnets(dtype, mkldnn):
    """A float32 derivative is wrong by 2.3e-7, MKLDNN's by 2.4e-7, MXNet's
    without it by 1.4e-7; the output is never further away than MXNet's."""
    x = inputs().astype(dtype)
    y, derivative = exact(x)
    ours, theirs = (results(chain, x, dtype, mkldnn) for chain in (OURS, STOCK))

    def error(found, name, truth):
        return np.abs(found[name].astype("float64") - truth).max()
    assert error(ours, "output", y) <= error(theirs, "output", y)
    limit = error(theirs, "gradient of x", derivative)
    assert error(ours, "gradient of x", derivative) <= \
        (limit if dtype == "float32" and mkldnn else max(1.2 * limit, SLOPE))


def test_the_output_alone_would_not_be_enough():
    """What the byte is for: one output stands for inputs with slopes that differ by 1e-4."""
    x = np.float32(MINIMUM) + np.linspace(-1.2e-4, 1.2e-4, 2001)
    x = x.astype("float32")
    found = results(OURS, x, "float32")
    _, derivative = exact(x)
    value, times = np.unique(found["output"], return_counts=True)
    same = found["output"] == value[times.argmax()]
    assert np.ptp(derivative[same]) > 1e-5
    assert np.abs(found["gradient of x"] - derivative).max() < SLOPE


def test_every_output_next_to_the_minimum_tells_its_inputs():
    """One float32 behind the other: the byte is never off by 128 units."""
    near = np.float32(MINIMUM) + np.linspace(-0.12, 0.12, 50001).astype("float32")
    steps = np.arange(-20000, 20000, dtype="int32") * 3
    x = np.concatenate([near, (np.float32(MINIMUM).view("int32") + steps).view("float32")])
    y, derivative = exact(x)
    found = results(OURS, x, "float32")
    assert np.abs(found["output"] - y).max() < 5e-8
    assert np.abs(found["gradient of x"] - derivative).max() < SLOPE


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("mkldnn", [False, True])
def test_nan_and_infinity_as_mxnet(dtype, mkldnn):
    """In every place of a vector, and where no vector is left over."""
    for length in (13, 13 * 16 + 5):
        x = np.resize(SPECIAL, length).astype("float32").astype(dtype)
        ours, theirs = (results(chain, x, dtype, mkldnn) for chain in (OURS, STOCK))
        for name in ("output", "gradient of x"):
            assert np.array_equal(np.isnan(ours[name]), np.isnan(theirs[name])), name
            known = np.isfinite(theirs[name])
            assert np.array_equal(ours[name][~known], theirs[name][~known], equal_nan=True)
            assert np.allclose(ours[name][known], theirs[name][known], rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_requests_and_places(dtype):
    """Lengths around vectors, pieces and the first length of several threads."""
    for length in (1, 7, 16, 31, 33, 2047, 2049, 16384 + 3):
        x = np.random.RandomState(length).randn(length).astype(dtype)
        written = results(OURS, x, dtype)
        whole = results(OURS, np.resize(x, 64), dtype)
        same = min(length, 64)
        for name in ("output", "gradient of x"):  # wherever in a vector
            assert np.array_equal(written[name][:same], whole[name][:same]), name
        added = results(OURS, x, dtype, grad_req="add", inner=False)
        assert np.array_equal(written["output"], added["output"])
        expected = written["gradient of x"] + np.asarray(0.5, dtype)
        assert np.abs(added["gradient of x"] - expected).max() < \
            {"float16": 2e-3}.get(dtype, 1e-7)
        assert "gradient of x" not in results(OURS, x, dtype, grad_req="null")


def test_it_keeps_the_output_and_a_byte():
    import mxnet as mx

    from benchmarks.mxnet.operators import kept_bytes
    native.load()
    data = mx.sym.Variable("data") * 1.0
    for op, each in ((mx.sym.memonger_gelu(data), 5),
                     (mx.sym.LeakyReLU(data, act_type="gelu"), 8)):
        assert kept_bytes(op, (8, 100)) == each * 800
