"""LayerNorm that keeps its output: an error against float64 no larger than MXNet's operator's."""
from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from needed import needs_plugin

from memonger.variants import rewrite as variants
from ops.runner import Case, call, error_against, run

pytestmark = needs_plugin

OP = "memonger_layer_norm"


def three(attributes, **case):
    """MXNet's in float64, MXNet's and ours in float32."""
    exact = call(run, Case([("LayerNorm", attributes)], dtype="float64", **case))
    stock = call(run, Case([("LayerNorm", attributes)], **case))
    ours = call(run, Case([(OP, attributes)], **case))
    for result in (exact, stock, ours):
        assert isinstance(result, dict), result
    return exact, stock, ours


@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(2, 40),
       st.integers(0, 3), st.sampled_from([1e-5, 1e-3]), st.sampled_from(["write", "add"]))
def test_error_against_float64_fuzzed(rest, width, axis, eps, grad_req):
    axis %= len(rest) + 1
    shape = (*rest[:axis], width, *rest[axis:])
    attributes = {"axis": axis if axis < len(rest) else -1, "eps": eps}
    exact, stock, ours = three(attributes, shape=shape, grad_req=grad_req)
    limit = max(3 * max(error_against(stock, exact).values()), 2e-6)
    assert max(error_against(ours, exact).values()) <= limit


def test_float64_and_half_precision():
    case = {"shape": (6, 5, 32), "steps": 2}
    exact = call(run, Case([("LayerNorm", {})], dtype="float64", **case))
    double = call(run, Case([(OP, {})], dtype="float64", **case))
    assert max(error_against(double, exact).values()) < 1e-12
    half = call(run, Case([(OP, {})], dtype="float16", **case))
    assert max(error_against(half, exact).values()) < 1e-2


def test_gamma_near_zero_is_kept_apart_or_refused():
    gamma = np.ones(32)
    gamma[[3, 20]] = 1e-9, 0
    exact, stock, ours = three({}, shape=(8, 7, 32), arguments={"op0_gamma": gamma})
    assert max(error_against(ours, exact).values()) < 1e-6
    text = call(run, Case([(OP, {})], shape=(8, 7, 32), arguments={"op0_gamma": np.zeros(32)}))
    assert isinstance(text, str) and "gamma is near zero in more than 2 of 32 channels" in text
    room = Case([(OP, {"spare_channels": 32})], shape=(8, 7, 32),
                arguments={"op0_gamma": np.zeros(32)})
    assert isinstance(call(run, room), dict)


def test_variant_of_a_transformer_block():
    import mxnet as mx
    norm = mx.sym.LayerNorm(mx.sym.Variable("data"), name="norm")
    dense = mx.sym.FullyConnected(norm, num_hidden=4, flatten=False, name="dense")
    assert variants.candidates(dense.tojson()) == {"norm": ["layer_norm"]}
    assert not variants.candidates(dense.tojson(), exact_only=True)
    three_outputs = mx.sym.LayerNorm(mx.sym.Variable("data"), output_mean_var=True, name="norm")
    assert "outputs of this op" in variants.refusals(
        three_outputs[0].tojson())["norm"]["layer_norm"]
