"""memonger_split_convolution: MXNet's own Convolution with its gradient in two steps."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from needed import needs_plugin

from ops.runner import Case, call, error_against, run, same_bits
from ops.test_convolution import convolutions

pytestmark = needs_plugin
OURS = "memonger_split_convolution"


@given(convolutions())
def test_same_bits_fuzzed(example):
    shape, attributes, _, dtype, grad_req = example
    case = {"shape": shape, "dtype": dtype, "grad_req": grad_req, "steps": 2}
    stock = call(run, Case([("Convolution", attributes)], **case))
    ours = call(run, Case([(OURS, attributes)], **case))
    assert isinstance(stock, dict), stock
    assert isinstance(ours, dict), ours
    assert same_bits(stock, ours) is None


def test_half_precision_is_mxnets():
    attributes = {"kernel": (3, 3), "num_filter": 4, "pad": (1, 1)}
    case = {"shape": (3, 3, 6, 7), "dtype": "float16"}
    stock, ours = (call(run, Case([(op, attributes)], **case)) for op in ("Convolution", OURS))
    assert isinstance(stock, str) == isinstance(ours, str), (stock, ours)
    assert isinstance(stock, str) or same_bits(stock, ours) is None


@pytest.mark.parametrize("attributes, words", [
    ({"num_filter": 4}, ["kernel"]),
    ({"num_filter": 4, "kernel": (3, 3), "colour": "red"}, ["colour"]),
    ({"num_filter": 4, "kernel": (9, 9)}, ["kernel size exceed input"]),
], ids=str)
def test_mistakes_are_named(attributes, words):
    text = call(run, Case([(OURS, attributes)], shape=(2, 3, 6, 6)))
    assert isinstance(text, str)
    for word in words:
        assert word in text


def with_mkldnn():
    found = []
    for attributes in ({"kernel": (3, 3), "pad": (1, 1), "num_filter": 16},
                       {"kernel": (3, 3), "num_filter": 16, "num_group": 4, "no_bias": True,
                        "dilate": (2, 2)},
                       {"kernel": (1, 1), "num_filter": 24, "stride": (2, 2)}):
        for dtype in ("float32", "float64"):
            for grad_req in ("write", "add"):
                case = {"shape": (8, 16, 14, 14), "grad_req": grad_req, "dtype": dtype, "steps": 2}
                found.append([run(Case([("Convolution", attributes), (op, attributes),
                                        ("relu", {})], **case)) for op in ("Convolution", OURS)])
    return found


def test_with_mkldnn_in_front_and_behind():
    """MKLDNN's layouts come in and go out; it leaves out the part that is not asked for."""
    for stock, ours in call(with_mkldnn, mkldnn=True):
        assert isinstance(stock, dict), stock
        assert isinstance(ours, dict), ours
        exact = {name: value.astype("float64") for name, value in stock.items()}
        assert max(error_against(ours, exact).values()) < 3e-6
        assert same_bits(stock, ours) is None


def changed_by_backward():
    """Which of the arguments are other numbers after a step that asks for some of the gradients."""
    import mxnet as mx

    from ops.runner import load_plugin
    load_plugin()
    net = getattr(mx.sym, OURS)(mx.sym.Variable("x"), kernel=(1, 1), num_filter=16, name="op")
    found = []
    for wanted in (("x",), ("op_weight",), ("op_bias",), ("x", "op_bias"), ("x", "op_weight")):
        requests = {name: "write" if name in wanted else "null" for name in net.list_arguments()}
        executor = net.simple_bind(mx.cpu(), grad_req=requests, x=(4, 16, 7, 7))
        for array in executor.arg_arrays:
            array[:] = mx.nd.random.normal(shape=array.shape)
        before = {name: array.asnumpy() for name, array in executor.arg_dict.items()}
        output = executor.forward(is_train=True)[0]
        executor.backward(mx.nd.ones(output.shape))
        for name, array in executor.arg_dict.items():
            if not np.array_equal(array.asnumpy(), before[name]):
                found.append((wanted, name))
    return found


@pytest.mark.parametrize("mkldnn", [False, True])
def test_backward_leaves_its_inputs_alone(mkldnn):
    """Arrays that stand for others that one of the two parts lacks are among them."""
    assert call(changed_by_backward, mkldnn=mkldnn) == []
