"""BatchNorm, ReLU and Convolution in one: bit for bit as MXNet's three operators."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from needed import needs_plugin

from memonger.variants import rewrite as variants
from ops.runner import Case, call, error_against, run, same_bits

pytestmark = needs_plugin

OP = "memonger_bn_relu_convolution"
CONVOLUTION = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 4}


def chains(norm, convolution, micro_batch):
    return ([("BatchNorm", norm), ("relu", {}), ("Convolution", convolution)],
            [(OP, dict(convolution, micro_batch=micro_batch, **norm))])


def renamed(result):
    """The convolution's parameters are named after the third op, or after the only one."""
    return {name.replace("op2_", "op0_"): value for name, value in result.items()}


@st.composite
def networks(draw):
    axes = draw(st.integers(1, 2))
    norm = {"fix_gamma": draw(st.booleans()), "eps": draw(st.sampled_from([1e-3, 2e-5])),
            "momentum": draw(st.sampled_from([0.9, 0.5])),
            "use_global_stats": draw(st.booleans())}
    groups = draw(st.sampled_from([1, 1, 2]))
    convolution = {"kernel": tuple(draw(st.integers(1, 3)) for _ in range(axes)),
                   "stride": tuple(draw(st.integers(1, 2)) for _ in range(axes)),
                   "pad": tuple(draw(st.integers(0, 1)) for _ in range(axes)),
                   "num_group": groups, "num_filter": groups * draw(st.integers(1, 3)),
                   "no_bias": draw(st.booleans())}
    shape = (draw(st.integers(1, 5)), groups * draw(st.integers(1, 5)),
             *(draw(st.integers(3, 9)) for _ in range(axes)))
    if draw(st.booleans()):
        norm["axis"] = draw(st.sampled_from([1, len(shape) - 1, -1]))
    return (norm, convolution, shape, draw(st.integers(0, 6)),
            {"dtype": draw(st.sampled_from(["float32", "float64"])),
             "grad_req": draw(st.sampled_from(["write", "add", "null"])),
             "inner": draw(st.booleans()), "steps": draw(st.integers(1, 2))})


@given(networks())
def test_same_bits_fuzzed(example):
    norm, convolution, shape, micro_batch, case = example
    stock, ours = (call(run, Case(chain, shape=shape, **case))
                   for chain in chains(norm, convolution, micro_batch))
    assert isinstance(stock, dict), stock
    assert isinstance(ours, dict), ours
    assert same_bits(renamed(stock), renamed(ours)) is None


def test_infinite_and_nan_values():
    stock, ours = (call(run, Case(chain, shape=(4, 6, 5, 5), values="special"))
                   for chain in chains({"use_global_stats": True}, CONVOLUTION, 2))
    assert same_bits(renamed(stock), renamed(ours)) is None


def with_mkldnn():
    results = []
    norm = {"fix_gamma": False}
    for micro_batch in (0, 3):
        for chain in chains(norm, dict(CONVOLUTION, num_filter=16), micro_batch):
            # Without a bias, whose gradient BatchNorm makes zero but for rounding.
            first = ("Convolution", dict(CONVOLUTION, num_filter=16, no_bias=True))
            chain = [first, *chain]
            results.append(run(Case(chain, shape=(8, 16, 14, 14), steps=2)))
    return [{name.replace("op2_", "op1_").replace("op3_", "op1_"): value
             for name, value in result.items()} for result in results]


def test_with_mkldnn_in_front_and_behind():
    results = call(with_mkldnn, mkldnn=True)
    exact = {name: value.astype("float64") for name, value in results[0].items()}
    for result in results[1:]:
        assert max(error_against(result, exact).values()) < 2e-5


def test_variant_refusals():
    import mxnet as mx
    data = mx.sym.Variable("data")

    def net(activation="relu", **norm):
        value = mx.sym.Activation(mx.sym.BatchNorm(data, name="bn", **norm), name="act",
                                  act_type=activation)
        return mx.sym.Convolution(value, kernel=(1, 1), num_filter=2, name="conv").tojson()
    assert variants.candidates(net())["conv"] == ["bn_relu_convolution", "split_convolution"]
    for text, words in ((net(axis=0), "is the batch"), (net(axis=-4), "is the batch"),
                        (net("tanh"), "not relu")):
        assert words in variants.refusals(text)["conv"]["bn_relu_convolution"]
