"""NaN, infinities, zeros and denormals, in the input and in the gradient, each with each.

What MXNet's operators make of them depends on MKLDNN, which is asked for the same operator here.
"""
from __future__ import annotations

import numpy as np
import pytest

from memonger import native
from ops.runner import Case, call, run, same_bits

pytestmark = pytest.mark.skipif(not (native.folder() / "libmemonger_mxnet.so").exists(),
                                reason="the plugin is not built")

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
       for name in ("sigmoid", "tanh", "softrelu", "softsign")},
    **{name: (("LeakyReLU", {"act_type": name}), ("memonger_leaky_relu", {"act_type": name}))
       for name in ("elu", "selu")},
}
#: Their gradients are made of the output, those of MKLDNN of the input.
ROUNDED_BESIDE_MKLDNN = ("tanh", "softrelu", "elu")


def both(pair, mkldnn, **case):
    case.setdefault("arguments", {"x": case.pop("data", DATA)})
    stock, ours = (call(run, Case([one], **case), mkldnn=mkldnn) for one in PAIRS[pair])
    if mkldnn and pair in ROUNDED_BESIDE_MKLDNN and case.get("dtype") == "float32":
        assert stock.keys() == ours.keys()
        # MKLDNN's elu takes a positive denormal for a negative number.
        normal = (np.abs(DATA) > 1e-38) | (DATA <= 0) | np.isnan(DATA)
        different = [name for name in stock if not np.allclose(
            stock[name][normal], ours[name][normal], rtol=3e-5, atol=1e-7, equal_nan=True)]
        return str(different) if different else None
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


@pytest.mark.parametrize("mkldnn", [False, True])
@pytest.mark.parametrize("pair", ["relu", "activation"])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 1000, 40003])
def test_any_number_of_nans_in_a_relu(pair, count, mkldnn):
    for places in ([0], [count - 1], range(count), range(0, count, 511)):
        data = np.random.RandomState(0).randn(count)
        data[list(places)] = np.nan
        assert both(pair, mkldnn, shape=(count,), data=data) is None, places


def test_a_nan_at_each_place():
    """Eight bytes of the mask are made at once, then one at a time, then single bits."""
    for place in range(64 + 16 + 3):
        data = np.random.RandomState(place).randn(64 + 16 + 3)
        data[place] = np.nan
        assert both("relu", False, shape=data.shape, data=data) is None, place


@pytest.mark.parametrize("pair", ["relu", "activation"])
def test_arrays_that_mkldnn_does_not_take(pair):
    for shape in ((1, 1, 1, 1, 1, DATA.size), (1, 1, 1, 1, DATA.size)):
        assert both(pair, True, shape=shape, data=DATA.reshape(shape),
                    head=HEAD.reshape(shape)) is None


def changing(op, attributes, shape):
    """Gradients of steps with and without NaN, of two ops at once, and twice of one step."""
    import mxnet as mx
    native.load()
    x, y = mx.sym.Variable("x"), mx.sym.Variable("y")
    make = getattr(mx.sym, op)
    net = mx.sym.Group([make(x * 1.0, name="a", **attributes), make(y * 1.0, name="b",
                                                                   **attributes)])
    executor = net.simple_bind(mx.cpu(), x=shape, y=shape)
    random, found = np.random.RandomState(0), {}
    for step, bad in enumerate(["x", "", "y", "xy", "y", "", ""]):
        for name in "xy":
            value = random.randn(*shape)
            if name in bad:
                value.flat[step::5] = np.nan
            executor.arg_dict[name][:] = value
        executor.forward(is_train=True)
        for again in range(2):
            executor.backward([mx.nd.array(random.randn(*shape)) for _ in "xy"])
            for name in "xy":
                found["%s %d %d" % (name, step, again)] = executor.grad_dict[name].asnumpy()
    return found


def test_places_of_nan_are_those_of_the_last_forward():
    stock = call(changing, "relu", {}, (3, 41))
    ours = call(changing, "memonger_mask_relu", {}, (3, 41))
    assert same_bits(stock, ours) is None
    assert np.isnan(ours["x 0 1"]).any() and not np.isnan(ours["x 1 0"]).any()


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
    left = {name.replace("op2_", "op0_"): value for name, value in left.items()}
    if not mkldnn:
        assert same_bits(left, right) is None
        return
    for name, value in left.items():
        assert np.array_equal(np.isnan(value), np.isnan(right[name])), name
        known = ~np.isnan(value)
        assert np.abs(value[known] - right[name][known]).max(initial=0) < 1e-4, name
