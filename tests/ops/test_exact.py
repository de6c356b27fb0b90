"""Exact variants: every bit as MXNet's own operator, over shapes, dtypes and attributes."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from needed import needs_plugin

from ops.runner import Case, call, run, same_bits

pytestmark = needs_plugin

BATCH_NORM = {"fix_gamma": False, "eps": 2e-5, "momentum": 0.8}
PAIRS = {
    "relu": ([("relu", {})], [("memonger_mask_relu", {})]),
    "activation relu": ([("Activation", {"act_type": "relu"})], [("memonger_mask_relu", {})]),
    "leaky relu": ([("LeakyReLU", {"act_type": "leaky", "slope": 0.1})],
                   [("memonger_mask_leaky_relu", {"slope": 0.1})]),
    "relu6": ([("clip", {"a_min": 0, "a_max": 6})],
              [("memonger_mask_clip", {"a_min": 0, "a_max": 6})]),
    "hardtanh": ([("clip", {"a_min": -1, "a_max": 1})],
                 [("memonger_mask_clip", {"a_min": -1, "a_max": 1, "adds": False})]),
    "dropout": ([("Dropout", {"p": 0.3})], [("memonger_mask_dropout", {"p": 0.3})]),
    "dropout of nothing": ([("Dropout", {"p": 0})], [("memonger_mask_dropout", {"p": 0})]),
    "batch norm and relu": (
        [("BatchNorm", BATCH_NORM), ("relu", {})], [("memonger_batch_norm_relu", BATCH_NORM)]),
}
SHAPES = [(3,), (7, 5), (2, 3, 5, 7), (4, 1, 9, 513)]
#: Channels side by side, and in short runs: more than are worked on at once.
CHANNELS = [(150, 37), (30, 21, 19)]
#: Maps that are copied to longer lines, more than one line each.
SMALL_MAPS = [(70, 5, 2, 2), (60, 6, 3, 3), (40, 3, 4, 4), (25, 2, 5, 5), (90, 4, 7)]


def renamed(result):
    """Parameters are named after the op, which has another place in a fused chain."""
    return {name.replace("op1_", "op0_"): value for name, value in result.items()}


def compare(stock, ours, **fields):
    left, right = call(run, Case(stock, **fields)), call(run, Case(ours, **fields))
    assert isinstance(left, dict), left
    assert isinstance(right, dict), right
    if ours[0][0] == "memonger_mask_relu":  # it passes the gradient of NaN, MXNet's makes it NaN
        for found in (left, right):
            if "gradient of x" in found:
                found["gradient of x"][np.isnan(left["output"])] = 0
    return same_bits(renamed(left), renamed(right))


@pytest.mark.parametrize("grad_req", ["write", "add"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("pair", PAIRS)
def test_same_bits(pair, dtype, grad_req):
    stock, ours = PAIRS[pair]
    for shape in SHAPES[1:] + CHANNELS + SMALL_MAPS if "norm" in pair else SHAPES:
        assert compare(stock, ours, shape=shape, dtype=dtype, grad_req=grad_req) is None, shape


@pytest.mark.parametrize("pair", ["relu", "activation relu", "leaky relu", "relu6", "hardtanh",
                                  "dropout"])
def test_infinite_and_nan_values(pair):
    stock, ours = PAIRS[pair]
    assert compare(stock, ours, shape=(6, 50), values="special") is None


@pytest.mark.parametrize("pair", PAIRS)
def test_null_gradient_and_a_parameter_as_data(pair):
    stock, ours = PAIRS[pair]
    assert compare(stock, ours, shape=(3, 4, 5), grad_req="null") is None
    assert compare(stock, ours, shape=(3, 4, 5), inner=False) is None


def test_batch_norm_relu_attributes():
    for attributes in ({"fix_gamma": True}, {"fix_gamma": False, "use_global_stats": True},
                       {"fix_gamma": False, "axis": 3}, {"fix_gamma": False, "axis": -1},
                       {"fix_gamma": False, "eps": 1e-2, "momentum": 0.5}):
        stock = [("BatchNorm", attributes), ("relu", {})]
        ours = [("memonger_batch_norm_relu", attributes)]
        for shape in ((8, 6, 9, 5), (3, 5, 2, 300)):
            assert compare(stock, ours, shape=shape, steps=2) is None, (attributes, shape)


@pytest.mark.parametrize("fix_gamma", [False, True])
@pytest.mark.parametrize("shape", [(5, 3, 21, 17), (13, 5, 5, 3), (100, 19)])
def test_batch_norm_relu_in_float16_from_denormals_to_infinity(shape, fix_gamma):
    random = np.random.RandomState(0)
    data, head = random.randn(2, *shape) * 10 ** random.uniform(-8, 5, (2,) + shape)
    data.flat[::7] = np.nan
    attributes = {"fix_gamma": fix_gamma, "use_global_stats": True}
    for activation in (("relu", {}), ("Activation", {"act_type": "relu"})):
        ours = dict(attributes, stands_for=activation[0])
        for grad_req in ("write", "add"):
            assert compare([("BatchNorm", attributes), activation],
                           [("memonger_batch_norm_relu", ours)], shape=shape, dtype="float16",
                           head=head, arguments={"x": data}, grad_req=grad_req) is None
    denormals = {"x": random.randn(*shape) * 1e-6, "op0_beta": np.zeros(shape[1])}
    assert compare([("BatchNorm", {"fix_gamma": fix_gamma}), ("relu", {})],
                   [("memonger_batch_norm_relu", {"fix_gamma": fix_gamma})], shape=shape,
                   dtype="float16", arguments=denormals) is None


def numbers(low, high):
    """MXNet reads no number that float32 does not hold."""
    return st.integers(0, 1000).map(lambda step: low + (high - low) * step / 1000)


@given(st.sampled_from(["relu", "activation relu", "leaky relu", "clip"]),
       st.lists(st.integers(1, 20), min_size=1, max_size=5), numbers(0, 2), numbers(-3, 3),
       numbers(0, 4), st.fixed_dictionaries({
           "dtype": st.sampled_from(["float32", "float64", "float16"]),
           "grad_req": st.sampled_from(["write", "add", "null"]), "inner": st.booleans(),
           "values": st.sampled_from(["normal", "ties", "positive", "special"])}))
def test_gates_fuzzed(pair, shape, slope, low, width, case):
    stock, ours = PAIRS["relu6" if pair == "clip" else pair]
    attributes = {"leaky relu": {"slope": slope}, "clip": {"a_min": low, "a_max": low + width}}
    if pair in attributes:
        stock, ours = ([(chain[0][0], dict(chain[0][1], **attributes[pair]))]
                       for chain in (stock, ours))
    if pair == "clip":  # MXNet's clip writes its gradient even when asked to add it
        case["inner"] = True
    assert compare(stock, ours, shape=tuple(shape), **case) is None


def test_clip_adds_where_mxnet_forgets_to():
    stock, ours = PAIRS["relu6"]
    case = {"shape": (4, 5), "inner": False}
    written = call(run, Case(ours, grad_req="write", **case))["gradient of x"]
    added = call(run, Case(ours, grad_req="add", **case))["gradient of x"]
    assert np.array_equal(added, written + np.float32(0.5))
    theirs = call(run, Case(stock, grad_req="add", **case))["gradient of x"]
    assert np.array_equal(theirs, written)
    [(op, attributes)] = ours
    in_its_place = [(op, {**attributes, "adds": False})]
    assert np.array_equal(call(run, Case(in_its_place, grad_req="add", **case))["gradient of x"],
                          theirs)


@given(st.lists(st.integers(1, 7), min_size=2, max_size=4), st.integers(0, 3),
       st.fixed_dictionaries({"fix_gamma": st.booleans(), "use_global_stats": st.booleans(),
                              "eps": st.sampled_from([1e-3, 2e-5, 0.1]),
                              "momentum": st.sampled_from([0.0, 0.5, 0.9])}),
       st.fixed_dictionaries({
           "dtype": st.sampled_from(["float32", "float64", "float16"]),
           "grad_req": st.sampled_from(["write", "add", "null"]), "inner": st.booleans(),
           "steps": st.integers(1, 2)}))
def test_batch_norm_relu_fuzzed(shape, axis, attributes, case):
    attributes["axis"] = axis % len(shape)
    assert compare([("BatchNorm", attributes), ("relu", {})],
                   [("memonger_batch_norm_relu", attributes)], shape=tuple(shape),
                   **case) is None


@given(numbers(0, 0.95), st.sampled_from(["training", "always"]),
       st.lists(st.integers(1, 30), min_size=1, max_size=3),
       st.sampled_from(["float32", "float64", "float16"]), st.sampled_from(["write", "add"]))
def test_dropout_fuzzed(p, mode, shape, dtype, grad_req):
    attributes = {"p": p, "mode": mode}
    assert compare([("Dropout", attributes)], [("memonger_mask_dropout", attributes)],
                   shape=tuple(shape), dtype=dtype, grad_req=grad_req) is None


def test_dropout_in_inference_and_always():
    for attributes, train in (({"p": 0.4}, False), ({"p": 0.4, "mode": "always"}, False)):
        stock, ours = [("Dropout", attributes)], [("memonger_mask_dropout", attributes)]
        left = call(run, Case(stock, shape=(5, 40), train=train, grad_req="null"))
        right = call(run, Case(ours, shape=(5, 40), train=train, grad_req="null"))
        assert same_bits(left, right) is None
        dropped = (right["output"] == 0).mean()
        assert (dropped > 0.2) == (attributes.get("mode") == "always")


def test_dropout_repeats_with_a_seed_and_differs_without():
    ours = [("memonger_mask_dropout", {"p": 0.5})]
    first, again, other = (call(run, Case(ours, shape=(9, 99), values="positive", seed=seed))
                           for seed in (1, 1, 2))
    assert same_bits(first, again) is None
    assert ((first["output"] == 0) != (other["output"] == 0)).any()


@st.composite
def pooling(draw):
    axes = draw(st.integers(1, 3))
    last = draw(st.booleans())
    space = tuple(draw(st.integers(1, 9)) for _ in range(axes))
    channels = (draw(st.integers(1, 5)),)
    shape = (draw(st.integers(1, 3)),) + (space + channels if last else channels + space)

    def each(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(axes))
    attributes = {"kernel": each(1, 5), "stride": each(1, 3),
                  "pooling_convention": draw(st.sampled_from(["valid", "full"])),
                  "global_pool": draw(st.booleans())}
    attributes["pad"] = tuple(draw(st.integers(0, size - 1)) for size in attributes["kernel"])
    if last:
        attributes["layout"] = ("NWC", "NHWC", "NDHWC")[axes - 1]
    return (shape, attributes, draw(st.sampled_from(["float32", "float64", "float16"])),
            draw(st.sampled_from(["write", "add"])),
            draw(st.sampled_from(["normal", "ties", "special"])))


@given(pooling())
def test_max_pool_fuzzed(example):
    shape, attributes, dtype, grad_req, values = example
    case = {"shape": shape, "dtype": dtype, "grad_req": grad_req, "values": values}
    stock = call(run, Case([("Pooling", dict(attributes, pool_type="max"))], **case))
    ours = call(run, Case([("memonger_max_pool", attributes)], **case))
    if isinstance(stock, str):
        assert isinstance(ours, str), stock
        return
    assert isinstance(ours, dict), ours
    assert same_bits(stock, ours) is None


@st.composite
def large_windows(draw):
    """Windows and steps of all sizes: indices of four bits, a byte and four bytes."""
    axes = draw(st.integers(1, 2))
    space = tuple(draw(st.integers(1, 45)) for _ in range(axes))
    kernel = tuple(draw(st.integers(1, min(size, 21))) for size in space)
    attributes = {"kernel": kernel,
                  "stride": tuple(draw(st.integers(1, 11)) for _ in range(axes)),
                  "pad": tuple(draw(st.integers(0, size // 2)) for size in kernel),
                  "pooling_convention": draw(st.sampled_from(["valid", "full"]))}
    return ((draw(st.integers(1, 2)), draw(st.integers(1, 9))) + space, attributes,
            draw(st.sampled_from(["float32", "float64"])),
            draw(st.sampled_from(["normal", "ties", "special"])))


@given(large_windows())
def test_max_pool_of_large_windows_fuzzed(example):
    shape, attributes, dtype, values = example
    assert compare([("Pooling", dict(attributes, pool_type="max"))],
                   [("memonger_max_pool", attributes)], shape=shape, dtype=dtype,
                   values=values) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [4, 20, 50])
def test_max_pool_of_zeros_with_signs(size, dtype):
    """The first of equal numbers wins, and -0 equals 0: small maps, others, one window."""
    zeros = np.where(np.random.RandomState(0).rand(2, 9, size, size) < 0.5, -0.0, 0.0)
    for attributes in ({"kernel": (2, 2), "stride": (2, 2)}, {"kernel": (4, 4), "stride": (1, 3)},
                       {"kernel": (9, 9), "stride": (2, 3), "pad": (4, 4)},
                       {"kernel": (20, 20), "stride": (9, 9), "pad": (9, 9)},
                       {"kernel": (1, 1), "global_pool": True}):
        assert compare([("Pooling", dict(attributes, pool_type="max"))],
                       [("memonger_max_pool", attributes)], shape=zeros.shape, dtype=dtype,
                       arguments={"x": zeros}, inner=False) is None


@pytest.mark.parametrize("shape, attributes", [
    ((2, 3, 120, 97), {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}),
    ((1, 2, 61, 260), {"kernel": (5, 4), "stride": (3, 2), "pad": (2, 2),
                       "pooling_convention": "full"}),
    ((1, 2, 5, 60, 80), {"kernel": (3, 3, 3), "stride": (2, 1, 1), "pad": (1, 1, 1)}),
    ((1, 9, 100, 130), {"kernel": (13, 13), "pad": (6, 6)}),
    ((2, 3, 5000), {"kernel": (300,), "stride": (9,), "pad": (50,)}),
    ((2, 3, 300, 300), {"kernel": (1, 1), "global_pool": True}),
    ((2, 9, 27, 28), {"kernel": (3, 3), "stride": (3, 3)}),
    ((2, 3, 56, 56), {"kernel": (50, 50), "stride": (50, 50)}),
], ids=str)
@pytest.mark.parametrize("values", ["normal", "ties", "special"])
def test_max_pool_of_large_maps(shape, attributes, values):
    """Maps of many lines, windows as large as the map."""
    for dtype in ("float32", "float64"):
        assert compare([("Pooling", dict(attributes, pool_type="max"))],
                       [("memonger_max_pool", attributes)], shape=shape, values=values,
                       dtype=dtype) is None


def test_max_pool_same_convention():
    attributes = {"kernel": (3,), "stride": (2,), "pad": (0, 0, 0), "pooling_convention": "same"}
    for width in (3, 4, 9):
        assert compare([("Pooling", dict(attributes, pool_type="max"))],
                       [("memonger_max_pool", attributes)], shape=(2, 3, width)) is None


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("shape", [(4, 16, 5, 7), (40, 16)])
def test_batch_norm_relu_of_closed_channels(shape, dtype):
    """The gradient of a channel that ReLU closes is 0, with the sign that MXNet gives it."""
    assert compare([("BatchNorm", {"fix_gamma": False}), ("relu", {})],
                   [("memonger_batch_norm_relu", {"fix_gamma": False})], shape=shape, dtype=dtype,
                   arguments={"op0_beta": np.tile([-100.0, 0.5], 8)}) is None
