"""NaN, infinities, zeros and denormals, in the input and in the gradient, each with each.

What MXNet's operators make of them depends on MKLDNN, which is asked for the same operator here.
"""
from __future__ import annotations

import numpy as np
import pytest
from needed import needs_plugin

from ops.runner import Case, call, renamed, run, same_bits

pytestmark = needs_plugin

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 7.0, 1e-7, -1e-7, 6.1e-5,
                    -6e-8, 1e-40, -1e-40])
#: Every value of the input with every value of the gradient.
DATA, HEAD = np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size)
FOR_ACTIVATION = {"stands_for": "Activation"}
PAIRS = {
    "relu": (("relu", {}), ("memonger_mask_relu", {})),
    "activation": (("Activation", {"act_type": "relu"}), ("memonger_mask_relu", FOR_ACTIVATION)),
    "leaky": (("LeakyReLU", {"slope": 0.1}), ("memonger_mask_leaky_relu", {"slope": 0.1})),
    "clip": (("clip", {"a_min": 0, "a_max": 6}),
             ("memonger_mask_clip", {"a_min": 0, "a_max": 6})),
    **{name: (("Activation", {"act_type": name}), ("memonger_activation", {"act_type": name}))
       for name in ("sigmoid", "tanh")},
}


def both(pair, mkldnn, **case):
    case.setdefault("arguments", {"x": case.pop("data", DATA)})
    stock, ours = (call(run, Case([one], **case), mkldnn=mkldnn) for one in PAIRS[pair])
    if mkldnn and pair == "tanh" and case.get("dtype") == "float32":
        # Its gradient is made of the output, that of MKLDNN of the input.
        assert stock.keys() == ours.keys()
        different = [name for name in stock if not np.allclose(
            stock[name], ours[name], rtol=3e-5, atol=1e-7, equal_nan=True)]
        return str(different) if different else None
    if pair in ("relu", "activation"):
        # Where a NaN passes, MXNet's makes the gradient NaN and ours passes it as it is.
        passed = np.isnan(stock["output"])
        assert np.isnan(stock["gradient of x"][passed]).all()
        stock["gradient of x"][passed] = ours["gradient of x"][passed]
    return same_bits(stock, ours)


@pytest.mark.parametrize("mkldnn", [False, True])
@pytest.mark.parametrize("pair", PAIRS)
def test_each_with_each(pair, mkldnn):
    for dtype in ("float32", "float64", "float16"):
        for grad_req in ("write", "add"):
            if grad_req == "add" and pair == "clip":
                continue  # MXNet's writes its gradient even when asked to add it
            for inner in (True, False):
                assert both(pair, mkldnn, shape=DATA.shape, head=HEAD, dtype=dtype,
                            grad_req=grad_req, inner=inner) is None, (dtype, grad_req, inner)


@pytest.mark.parametrize("pair", ["relu", "activation"])
def test_arrays_that_mkldnn_does_not_take(pair):
    for shape in ((1, 1, 1, 1, 1, DATA.size), (1, 1, 1, 1, DATA.size)):
        assert both(pair, True, shape=shape, data=DATA.reshape(shape),
                    head=HEAD.reshape(shape)) is None


CHAINS = {
    "norm": ([("BatchNorm", {"use_global_stats": True})],
             "memonger_batch_norm_relu", {"use_global_stats": True}),
    "convolution": ([("BatchNorm", {"use_global_stats": True})], "memonger_bn_relu_convolution",
                    {"use_global_stats": True, "kernel": (1, 1), "num_filter": 2,
                     "no_bias": True}),
}


@pytest.mark.parametrize("relu", [("relu", {}), ("Activation", {"act_type": "relu"})])
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("mkldnn", [False, True])
def test_behind_batch_norm(chain, relu, mkldnn):
    stock, op, attributes = CHAINS[chain]
    stock = [*stock, relu]
    if chain == "convolution":
        stock.append(("Convolution", {k: attributes[k] for k in ("kernel", "num_filter",
                                                                 "no_bias")}))
    ours = [(op, dict(attributes, stands_for=relu[0]))]
    data = np.random.RandomState(0).randn(4, 3, 5, 7)
    data[1, :, 2, 3:5] = np.nan
    left, right = (call(run, Case(one, shape=data.shape, arguments={"x": data}), mkldnn=mkldnn)
                   for one in (stock, ours))
    left = renamed(left)
    if not mkldnn:
        assert same_bits(left, right) is None
        return
    for name, value in left.items():
        assert np.array_equal(np.isnan(value), np.isnan(right[name])), name
        known = ~np.isnan(value)
        assert np.abs(value[known] - right[name][known]).max(initial=0) < 1e-4, name


@pytest.mark.parametrize("where", ["x", "op0_gamma", "op0_beta"])
@pytest.mark.parametrize("stock, ours, attributes", [
    ("BatchNorm", "memonger_inplace_batch_norm", {"fix_gamma": False}),
    ("LayerNorm", "memonger_layer_norm", {"axis": 1})])
def test_norms_are_not_a_number_where_those_of_mxnet_are(stock, ours, attributes, where):
    """Of a channel that cannot be rebuilt from its output all gradients are NaN, too."""
    random = np.random.RandomState(0)
    arguments = {"x": random.randn(4, 3, 5), "op0_gamma": random.rand(3) + 0.5,
                 "op0_beta": random.rand(3)}
    arguments[where][1:] = np.nan  # in more channels than `spare` has room for
    left, right = (call(run, Case([(op, attributes)], shape=(4, 3, 5), arguments=arguments))
                   for op in (stock, ours))
    assert not isinstance(right, str), right
    for name, value in renamed(left).items():
        theirs, known = np.isnan(value), ~np.isnan(right[name])
        if where == "x" or "gradient" not in name:
            assert np.array_equal(theirs, ~known), name
        assert not (theirs & known).any(), name
        assert np.abs(value[known] - right[name][known]).max(initial=0) < 1e-5, name
