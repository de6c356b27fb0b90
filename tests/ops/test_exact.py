"""Exact variants: every bit as MXNet's own operator, over shapes, dtypes and attributes."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from needed import needs_plugin

from memonger import native
from ops.runner import Case, call, compare, run, same_bits

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
#: Channels side by side, and in short runs.
CHANNELS = [(150, 37), (30, 21, 19), (60, 6, 3, 3), (90, 4, 7)]


@pytest.mark.parametrize("grad_req", ["write", "add"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("pair", PAIRS)
def test_same_bits(pair, dtype, grad_req):
    stock, ours = PAIRS[pair]
    for shape in SHAPES[1:] + CHANNELS if "norm" in pair else SHAPES:
        assert compare(stock, ours, shape=shape, dtype=dtype, grad_req=grad_req) is None, shape


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


@given(st.sampled_from(["relu", "activation relu", "leaky relu", "clip", "sigmoid", "tanh"]),
       st.lists(st.integers(1, 20), min_size=1, max_size=5), numbers(0, 2), numbers(-3, 3),
       numbers(0, 4), st.fixed_dictionaries({
           "dtype": st.sampled_from(["float32", "float64", "float16"]),
           "grad_req": st.sampled_from(["write", "add", "null"]), "inner": st.booleans(),
           "values": st.sampled_from(["normal", "ties", "positive", "special"])}))
def test_gates_fuzzed(pair, shape, slope, low, width, case):
    if pair in ("sigmoid", "tanh"):
        stock, ours = ([(op, {"act_type": pair})] for op in ("Activation", "memonger_activation"))
    else:
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
def pooling(draw, most_axes=3, largest=9, window=5, step=3):
    axes = draw(st.integers(1, most_axes))
    last = draw(st.booleans())
    space = tuple(draw(st.integers(1, largest)) for _ in range(axes))
    channels = (draw(st.integers(1, 5)),)
    shape = (draw(st.integers(1, 3)),) + (space + channels if last else channels + space)

    def each(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(axes))
    attributes = {"kernel": each(1, window), "stride": each(1, step),
                  "pooling_convention": draw(st.sampled_from(["valid", "full"])),
                  "global_pool": draw(st.booleans())}
    attributes["pad"] = tuple(draw(st.integers(0, size - 1)) for size in attributes["kernel"])
    if last:
        attributes["layout"] = ("NWC", "NHWC", "NDHWC")[axes - 1]
    return (shape, attributes, draw(st.sampled_from(["float32", "float64", "float16"])),
            draw(st.sampled_from(["write", "add"])),
            draw(st.sampled_from(["normal", "ties", "special"])))


def compare_pools(ours, shape, attributes, dtype="float32", grad_req="write", values="normal",
                  pool_type="max", **case):
    own = attributes if pool_type == "max" else dict(attributes, pool_type=pool_type)
    return compare([("Pooling", dict(attributes, pool_type=pool_type))], [(ours, own)],
                   shape=shape, dtype=dtype, grad_req=grad_req, values=values, **case)


@pytest.mark.parametrize("examples", [
    pooling(), pooling(2, 45, 21, 11)  # numbers of four bits, a byte and four bytes
], ids=["small", "large"])
@given(data=st.data())
def test_max_pool_fuzzed(examples, data):
    assert compare_pools("memonger_max_pool", *data.draw(examples)) is None


@given(pooling(), st.sampled_from(["avg", "sum"]), st.booleans())
def test_average_pool_fuzzed(example, pool_type, count_include_pad):
    shape, attributes, *case = example
    attributes["count_include_pad"] = count_include_pad
    assert compare_pools("memonger_avg_pool", shape, attributes, *case, pool_type) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_max_pool_of_zeros_with_signs(dtype):
    """The first of equal numbers wins, and -0 equals 0."""
    zeros = np.where(np.random.RandomState(0).rand(2, 9, 20, 20) < 0.5, -0.0, 0.0)
    for attributes in ({"kernel": (2, 2), "stride": (2, 2)},
                       {"kernel": (9, 9), "stride": (2, 3), "pad": (4, 4)},
                       {"kernel": (1, 1), "global_pool": True}):
        assert compare_pools("memonger_max_pool", zeros.shape, attributes, dtype,
                             arguments={"x": zeros}, inner=False) is None


@pytest.mark.parametrize("shape, attributes", [
    ((2, 3, 120, 97), {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}),
    ((1, 2, 61, 260), {"kernel": (5, 4), "stride": (3, 2), "pad": (2, 2),
                       "pooling_convention": "full"}),
    ((1, 2, 5, 60, 80), {"kernel": (3, 3, 3), "stride": (2, 1, 1), "pad": (1, 1, 1)}),
    ((2, 3, 5000), {"kernel": (300,), "stride": (9,), "pad": (50,)}),
    ((2, 3, 300, 300), {"kernel": (1, 1), "global_pool": True}),
], ids=str)
@pytest.mark.parametrize("values", ["normal", "ties", "special"])
def test_max_pool_of_large_maps(shape, attributes, values):
    """Enough for several threads."""
    assert compare_pools("memonger_max_pool", shape, attributes, values=values) is None


def concatenated(op, shapes, dim, dtype, grad_req):
    import mxnet as mx
    native.load()
    inputs = [mx.sym.Variable("x%d" % i) * 1.0 for i in range(len(shapes))]
    symbol = getattr(mx.sym, op)(*inputs, dim=dim, name="join")
    names = {"x%d" % i: shape for i, shape in enumerate(shapes)}
    executor = symbol.simple_bind(mx.cpu(), grad_req=grad_req, type_dict=dict.fromkeys(
        names, dtype), **names)
    random = np.random.RandomState(0)
    for name in names:
        executor.arg_dict[name][:] = random.randn(*names[name])
        executor.grad_dict[name][:] = 0.5
    output = executor.forward(is_train=True)[0]
    executor.backward(mx.nd.array(random.randn(*output.shape), dtype=output.dtype))
    return {"output": output.asnumpy(),
            **{name: array.asnumpy() for name, array in executor.grad_dict.items()}}


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 3),
       st.lists(st.integers(1, 6), min_size=1, max_size=5),
       st.sampled_from(["float32", "float64", "float16"]), st.sampled_from(["write", "add"]))
def test_concat_fuzzed(shape, dim, widths, dtype, grad_req):
    dim %= len(shape)
    shapes = [tuple(width if axis == dim else extent for axis, extent in enumerate(shape))
              for width in widths]
    stock, ours = (call(concatenated, op, shapes, dim, dtype, grad_req)
                   for op in ("Concat", "memonger_concat"))
    assert same_bits(stock, ours) is None


def test_max_pool_same_convention():
    attributes = {"kernel": (3,), "stride": (2,), "pad": (0, 0, 0), "pooling_convention": "same"}
    for width in (3, 4, 9):
        assert compare_pools("memonger_max_pool", (2, 3, width), attributes) is None


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("shape", [(4, 16, 5, 7), (40, 16)])
def test_batch_norm_relu_of_closed_channels(shape, dtype):
    """The gradient of a channel that ReLU closes is 0, with the sign that MXNet gives it."""
    assert compare([("BatchNorm", {"fix_gamma": False}), ("relu", {})],
                   [("memonger_batch_norm_relu", {"fix_gamma": False})], shape=shape, dtype=dtype,
                   arguments={"op0_beta": np.tile([-100.0, 0.5], 8)}) is None
