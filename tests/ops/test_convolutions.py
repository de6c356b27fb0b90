"""The operators that run MXNet's Convolution: in two steps, and fused on parts of a batch."""
from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from needed import needs_plugin

from memonger import native
from memonger.mx.symbol import swap as variants
from ops.runner import Case, call, compare, error_against, load_plugin, run, same_bits

pytestmark = needs_plugin

#: MXNet's chain and ours, of attributes of the convolution and of a BatchNorm in front.
CHAINS = {
    "split": lambda attributes, norm, micro_batch: (
        [("Convolution", attributes)], [("memonger_split_convolution", attributes)]),
    "fused": lambda attributes, norm, micro_batch: (
        [("BatchNorm", norm), ("relu", {}), ("Convolution", attributes)],
        [("memonger_bn_relu_convolution", dict(attributes, micro_batch=micro_batch, **norm))]),
}


@st.composite
def convolutions(draw):
    axes = draw(st.integers(1, 3))

    def each(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(axes))
    groups = draw(st.sampled_from([1, 1, 2]))
    attributes = {"kernel": each(1, 3), "stride": each(1, 2), "pad": each(0, 2),
                  "dilate": each(1, 2), "num_group": groups, "no_bias": draw(st.booleans()),
                  "num_filter": groups * draw(st.integers(1, 4))}
    if draw(st.booleans()):
        attributes["layout"] = ("NCW", "NCHW", "NCDHW")[axes - 1]
    norm = {"fix_gamma": draw(st.booleans()), "eps": draw(st.sampled_from([1e-3, 2e-5])),
            "momentum": draw(st.sampled_from([0.9, 0.5])),
            "use_global_stats": draw(st.booleans())}
    if draw(st.booleans()):
        norm["axis"] = draw(st.sampled_from([1, axes + 1, -1]))
    case = {"shape": (draw(st.integers(1, 5)), groups * draw(st.integers(1, 3)), *each(5, 8)),
            "dtype": draw(st.sampled_from(["float32", "float64"])), "inner": draw(st.booleans()),
            "grad_req": draw(st.sampled_from(["write", "add", "null"])), "steps": 2}
    return attributes, norm, draw(st.integers(0, 6)), case


@pytest.mark.parametrize("kind", CHAINS)
@given(convolutions())
def test_same_bits_fuzzed(kind, example):
    *options, case = example
    stock, ours = CHAINS[kind](*options)
    assert isinstance(call(run, Case(stock, **case)), dict)
    assert compare(stock, ours, **case) is None


def test_infinite_and_nan_values():
    stock, ours = CHAINS["fused"]({"kernel": (3, 3), "pad": (1, 1), "num_filter": 4},
                                  {"use_global_stats": True}, 2)
    assert compare(stock, ours, shape=(4, 6, 5, 5), values="special") is None


def test_half_precision_is_mxnets():
    stock, ours = CHAINS["split"]({"kernel": (3, 3), "num_filter": 4, "pad": (1, 1)}, {}, 0)
    assert compare(stock, ours, shape=(3, 3, 6, 7), dtype="float16") is None


def with_mkldnn(kind):
    """Behind a convolution and before a ReLU: by MXNet's operators and by ours."""
    # No biases before BatchNorm, which makes their gradients zero but for rounding.
    first = ("Convolution", {"kernel": (3, 3), "pad": (1, 1), "num_filter": 16, "no_bias": True})
    for attributes in ({"kernel": (3, 3), "pad": (1, 1), "num_filter": 16},
                       {"kernel": (3, 3), "num_filter": 16, "num_group": 4, "no_bias": True,
                        "dilate": (2, 2)},
                       {"kernel": (1, 1), "num_filter": 24, "stride": (2, 2)}):
        for dtype, grad_req, micro_batch in (("float32", "write", 0), ("float32", "add", 3),
                                             ("float64", "write", 3), ("float64", "add", 0)):
            case = {"shape": (8, 16, 14, 14), "grad_req": grad_req, "dtype": dtype, "steps": 2}
            results = [run(Case([first, *chain, ("relu", {})], **case)) for chain in
                       CHAINS[kind](attributes, {"fix_gamma": False}, micro_batch)]
            stock, ours = ({re.sub("op[23]_", "op1_", name): value for name, value in one.items()}
                           for one in results)
            exact = {name: value.astype("float64") for name, value in stock.items()}
            if kind == "split":  # MKLDNN leaves out the part that is not asked for
                assert same_bits(stock, ours) is None
            # Sums of parts differ in the last bits.
            assert max(error_against(ours, exact).values()) < (2e-5 if kind == "fused" else 3e-6)


@pytest.mark.parametrize("kind", CHAINS)
def test_with_mkldnns_layouts_in_front_and_behind(kind):
    call(with_mkldnn, kind, mkldnn=True)


# ---------------------------------------------------------------------- parts of a batch
def samples_at_a_time(settings, shape):
    """Told by the buffer of the operator that makes the convolution's input again."""
    import mxnet as mx

    from memonger.mx.capture.record import read
    native.load()
    symbol = mx.sym.memonger_bn_relu_convolution(mx.sym.Variable("x"), num_filter=8, **settings)
    graph = read(symbol, {"x": shape}).graph
    return graph.tensors[graph.ops[0].outputs[3]].shape[0]


@pytest.mark.parametrize("settings, samples", [
    ({}, 7), ({"micro_batch": 3}, 3), ({"micro_batch": 9}, 7), ({"micro_batch_mb": 1}, 1),
    ({"micro_batch_mb": 3}, 3), ({"micro_batch_mb": 5}, 4), ({"micro_batch_mb": 6}, 4),
    ({"micro_batch_mb": 7}, 7), ({"micro_batch": 2, "micro_batch_mb": 5}, 4),
    ({"micro_batch": 4, "micro_batch_mb": 1}, 4), ({"micro_batch": 2, "micro_batch_mb": 1}, 2),
], ids=str)
def test_samples_at_a_time(settings, samples):
    """Of 1 MB of data and output each."""
    assert call(samples_at_a_time, dict(settings, kernel=(1, 1)), (7, 8, 128, 128)) == samples


def test_parts_are_not_small_beside_the_weight():
    """Samples of 0.5 MB; eight times the weight is 0.1, 1.2 and 3.3 MB, for 1, 2 and 6 of them."""
    shape = (7, 512, 16, 16)
    for kernel, samples in (((1, 1), 1), ((3, 3), 2), ((5, 5), 4)):
        settings = {"kernel": kernel, "pad": tuple(k // 2 for k in kernel), "micro_batch_mb": 1}
        assert call(samples_at_a_time, settings, shape) == samples


@pytest.mark.parametrize("micro_batch_mb", [1, 5])
def test_parts_of_some_bytes(micro_batch_mb):
    """Samples of 1.4 MB: each is too large by itself, or two parts of two."""
    stock, ours = CHAINS["fused"]({"kernel": (1, 1), "num_filter": 3}, {"fix_gamma": False}, 0)
    ours = [(kind, dict(attributes, micro_batch_mb=micro_batch_mb)) for kind, attributes in ours]
    assert compare(stock, ours, shape=(4, 6, 200, 201)) is None


def test_native_workspace_is_one_sample_however_large_the_batch():
    from memonger.graph.types import Graph, Op, Tensor
    from memonger.mx.memory.native_workspaces import native_workspaces

    def workspace(batch, kernel, **attributes):
        shapes = [(batch, 8, 10, 10), (16, 8, kernel, kernel), (batch, 16, 10, 10)]
        graph = Graph(tuple(Tensor(str(i), 4 * int(np.prod(shape)), 0 if i == 2 else -1,
                                   shape=shape) for i, shape in enumerate(shapes)),
                      (Op.of("c", "Convolution", (0, 1), (2,)),), (2,))
        return native_workspaces(graph, [{"kernel": str((kernel, kernel)), **attributes}])
    assert workspace(1, 3) == workspace(64, 3) == (8 * 9 * 100 * 4,)
    assert workspace(4, 1) == (0,) and workspace(4, 1, stride="(2, 2)") == (8 * 100 * 4,)


# ---------------------------------------------------------------------- in two steps, fused
def changed_by_backward():
    """Which of the arguments are other numbers after a step that asks for some of the gradients."""
    import mxnet as mx
    load_plugin()
    net = mx.sym.memonger_split_convolution(mx.sym.Variable("x"), kernel=(1, 1), num_filter=16,
                                            name="op")
    found = []
    for wanted in (("x",), ("op_weight",), ("op_bias",), ("x", "op_bias"), ("x", "op_weight")):
        requests = {name: "write" if name in wanted else "null" for name in net.list_arguments()}
        executor = net.simple_bind(mx.cpu(), grad_req=requests, x=(4, 16, 7, 7))
        for array in executor.arg_arrays:
            array[:] = mx.nd.random.normal(shape=array.shape)
        before = {name: array.asnumpy() for name, array in executor.arg_dict.items()}
        output = executor.forward(is_train=True)[0]
        executor.backward(mx.nd.ones(output.shape))
        found += [(wanted, name) for name, array in executor.arg_dict.items()
                  if not np.array_equal(array.asnumpy(), before[name])]
    return found


@pytest.mark.parametrize("mkldnn", [False, True])
def test_backward_leaves_its_inputs_alone(mkldnn):
    """Arrays that stand for others that one of the two parts lacks are among them."""
    assert call(changed_by_backward, mkldnn=mkldnn) == []


@pytest.mark.parametrize("activation, norm, words", [
    ("relu", {}, None), ("relu", {"axis": 0}, "is the batch"),
    ("relu", {"axis": -4}, "is the batch"),
    ("tanh", {}, "not relu")])
def test_refusals_of_the_fused_variant(activation, norm, words):
    import mxnet as mx
    value = mx.sym.Activation(mx.sym.BatchNorm(mx.sym.Variable("data"), name="bn", **norm),
                              name="act", act_type=activation)
    net = mx.sym.Convolution(value, kernel=(1, 1), num_filter=2, name="conv").tojson()
    if words is None:
        assert variants.candidates(net)["conv"] == ["bn_relu_convolution", "split_convolution"]
    else:
        assert words in variants.refusals(net)["conv"]["bn_relu_convolution"]
