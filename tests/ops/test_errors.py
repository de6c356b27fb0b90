"""What operators say about mistakes: one line that names the operator, and never less than MXNet.

Each mistake is made with ``mx.sym``, ``mx.nd`` and a hybridized Gluon block.
"""
from __future__ import annotations

import pytest
from needed import needs_plugin

from ops.runner import _forget_errors, call, load_plugin
from ops.test_by_hand import CALLS, SHAPE, shapes_of

pytestmark = needs_plugin

#: Operators that leave shapes and dtypes to MXNet's own of the same attributes.
DELEGATES = {"memonger_activation": "Activation", "memonger_avg_pool": "Pooling",
             "memonger_concat": "Concat",
             "memonger_split_convolution": "Convolution"}
CONVOLUTION = {"kernel": (3, 3), "num_filter": 2}
OTHERS = sorted(set(CALLS) - set(DELEGATES))


def said(op, attributes, shape=SHAPE, dtype="float32", others=None):
    """What each way of calling says, "" for nothing; ``others`` are shapes behind the data."""
    import mxnet as mx
    load_plugin()
    shapes = {} if others is None else dict(others)

    def symbol():
        net = getattr(mx.sym, op)(mx.sym.Variable("x"), name="op0", **attributes)
        net.simple_bind(mx.cpu(), type_dict={"x": dtype}, x=shape,
                        **{"op0_" + name: its for name, its in shapes.items()}).forward()

    def arrays():
        return [mx.nd.ones(shape, dtype=dtype), *(mx.nd.ones(its) for its in shapes.values())]

    def imperative():
        with mx.autograd.record():
            getattr(mx.nd, op)(*arrays(), **attributes)

    def gluon():
        class Block(mx.gluon.HybridBlock):
            def hybrid_forward(self, F, *inputs):
                return getattr(F, op)(*inputs, name="op0", **attributes)

        block = Block()
        block.hybridize()
        block(*arrays())

    found = []
    for make in (symbol, imperative, gluon):
        try:
            make()
            mx.nd.waitall()
            found.append("")
        except (mx.base.MXNetError, RuntimeError) as error:
            _forget_errors()
            found.append(str(error))
    return found


def check(texts, *words):
    for way, text in zip(("sym", "nd", "gluon"), texts):
        for word in words:
            assert word in text, (way, text)
        assert "Stack trace" not in text and "plugins/" not in text, (way, text)


def inputs_of(op):
    return [(name[4:], shape) for name, (shape, _) in call(shapes_of_loaded, op).items()]


def shapes_of_loaded(op):
    load_plugin()
    return shapes_of(op)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
@pytest.mark.parametrize("op", OTHERS)
def test_a_dtype_that_is_not_real(op, dtype):
    texts = call(said, op, CALLS[op][0], SHAPE, dtype, inputs_of(op))
    check(texts, op, "dtype %s is not supported; use float16, float32 or float64" % dtype)
    assert "op0" in texts[0]


@pytest.mark.parametrize("op", [op for op in OTHERS if "norm" in op or "bn_relu" in op])
def test_shapes_and_dtypes_of_parameters(op):
    others = inputs_of(op)
    for place, (name, shape) in enumerate(others):
        if name in ("weight", "bias"):  # MXNet's convolution tells
            continue
        wrong = others[:place] + [(name, (7,))] + others[place + 1:]
        check(call(said, op, CALLS[op][0], SHAPE, "float32", wrong), op,
              "Provided = [7], inferred shape=%s for %s" % (list(shape), name))
    check(call(said, op, CALLS[op][0], SHAPE, "float64", others)[1:], op,
          "Provided = float32, inferred type = float64 for gamma")


MISTAKES = [
    ("memonger_mask_relu", {"stand_for": "relu"}, "Cannot find argument 'stand_for'"),
    ("memonger_mask_relu", {"stands_for": "Relu"}, "valid values are: {'Activation', 'relu'}"),
    ("memonger_mask_leaky_relu", {"slope": -1}, "should be greater equal to 0"),
    ("memonger_mask_clip", {"a_min": 0}, "Required parameter a_max"),
    ("memonger_mask_dropout", {"p": 1.5}, "exceed bound [0,1]"),
    ("memonger_max_pool", {"kernel": (-1, 2)}, "kernel must be positive"),
    ("memonger_max_pool", {"kernel": (2, 2, 2, 2)}, "4D pooling not supported"),
    ("memonger_max_pool", {"kernel": (2, 2), "pad": (-1, -1)}, "pad must not be negative"),
    ("memonger_avg_pool", {"kernel": (2, 2), "pool_type": "max"}, "must be avg or sum, not max"),
    ("memonger_inplace_batch_norm", {"act_type": "leaky", "slope": 0}, "must be above zero"),
    ("memonger_inplace_batch_norm", {"act_type": "leaky", "slope": "nan"}, "must be above zero"),
    ("memonger_bn_relu_convolution", {**CONVOLUTION, "eps": "a"},
     "Invalid Parameter format for eps"),
    ("memonger_bn_relu_convolution", {**CONVOLUTION, "stands_for": "x"},
     "Invalid Input: 'x'"),
    ("memonger_bn_relu_convolution", {**CONVOLUTION, "micro_batch": -1},
     "should be greater equal to 0"),
    ("memonger_bn_relu_convolution", {**CONVOLUTION, "workspace": "x"},
     "Invalid Parameter format for workspace"),
    ("memonger_split_convolution", {**CONVOLUTION, "cudnn_tune": "slow"}, "slow"),
    ("memonger_split_convolution", {"kernel": (3, 3)}, "Required parameter num_filter"),
    ("memonger_layer_norm", {"output_mean_var": True}, "mean and variance are not among"),
    ("memonger_activation", {"act_type": "foo"}, "Invalid Input: 'foo'"),
    ("memonger_activation", {"act_type": "relu"}, "memonger_mask_relu keeps the least"),
]


@pytest.mark.parametrize("op, attributes, words", MISTAKES, ids=str)
def test_wrong_attributes(op, attributes, words):
    check(call(said, op, attributes), words, "in operator %s(name=" % op)


@pytest.mark.parametrize("op, attributes, shape, words", [
    ("memonger_max_pool", {"kernel": (2, 2)}, (3, 4), "not [3,4]"),
    ("memonger_max_pool", {"kernel": (2, 2)}, (3, 4, 5), "a window of 2 axes needs data of 4"),
    ("memonger_max_pool", {"kernel": (2, 2), "stride": (1,)}, SHAPE, "does not fit the window"),
    ("memonger_max_pool", {"kernel": (4000000000, 2)}, SHAPE, "(4000000000) exceeds input (5"),
    ("memonger_max_pool", {"kernel": (2, 2), "pad": (2000000000, 1)}, SHAPE, "is too large"),
    ("memonger_max_pool", {"kernel": (2, 2), "layout": "NCDHW"}, SHAPE, "layout NCDHW is not"),
    ("memonger_batch_norm_relu", {"axis": 7}, SHAPE, "axis out of range: 7 of data [3,4,5,6]"),
    ("memonger_inplace_batch_norm", {"axis": -9}, SHAPE, "axis out of range: -9"),
    ("memonger_layer_norm", {"axis": 4}, SHAPE, "axis out of range: 4"),
    ("memonger_bn_relu_convolution", {**CONVOLUTION, "axis": 0}, SHAPE,
     "cannot be the batch"),
    ("memonger_bn_relu_convolution", {**CONVOLUTION, "axis": -4}, SHAPE,
     "cannot be the batch"),
], ids=str)
def test_attributes_that_do_not_fit_the_data(op, attributes, shape, words):
    others = [(name, (4,)) for name, _ in inputs_of(op)]
    check(call(said, op, attributes, shape, "float32", others), op, words)


#: Mistakes that MXNet's operators find, in shape and type inference and while computing.
DELEGATED = [
    ("memonger_split_convolution", CONVOLUTION, "float32", [("weight", (7,)), ("bias", (2,))],
     "[7]"),
    ("memonger_split_convolution", CONVOLUTION, "float64",
     [("weight", (2, 4, 3, 3)), ("bias", (2,))], "Expected 'float64'"),
    ("memonger_split_convolution", {**CONVOLUTION, "no_bias": True}, "float32",
     [("weight", (2, 5, 3, 3))], "[2,5,3,3]"),
    ("memonger_bn_relu_convolution", {**CONVOLUTION, "no_bias": True}, "float32",
     [("gamma", (4,)), ("beta", (4,)), ("mean", (4,)), ("variance", (4,)), ("weight", (7,))],
     "[7]"),
    ("memonger_concat", {"dim": 1}, "float32", [("y", (3, 4, 5, 7))], "got [3,4,5,7]"),
    ("memonger_concat", {"dim": 1}, "float64", [("y", (3, 4, 5, 6))], "expected data type float64"),
    ("memonger_activation", {"act_type": "tanh"}, "int32", [], "not int32"),
    ("memonger_avg_pool", {"kernel": (2, 2), "pool_type": "avg"}, "int64", [], "not int64"),
]


@pytest.mark.parametrize("op, attributes, dtype, others, words", DELEGATED, ids=str)
def test_errors_of_mxnets_operators_name_ours(op, attributes, dtype, others, words):
    for text in call(said, op, attributes, SHAPE, dtype, others)[1:]:
        assert op in text and words in text, text


def test_steps_beyond_the_map_are_like_mxnets():
    attributes = {"kernel": (2, 2), "stride": (2000000000, 3)}
    assert call(output_shape, "memonger_max_pool", attributes) == \
        call(output_shape, "Pooling", attributes) == (3, 4, 1, 2)


def output_shape(op, attributes):
    import mxnet as mx
    load_plugin()
    return getattr(mx.nd, op)(mx.nd.ones(SHAPE), **attributes).shape


#: Operator and attributes: as MXNet's of other attributes.
STOCK = {
    "memonger_mask_relu": ({}, "relu", {}), "memonger_gelu": ({}, "relu", {}),
    "memonger_mask_clip": ({"a_min": 0, "a_max": 1}, "clip", {"a_min": 0, "a_max": 1}),
    "memonger_mask_dropout": ({}, "relu", {}), "memonger_mask_leaky_relu": ({}, "relu", {}),
    "memonger_max_pool": ({"kernel": (2, 2)}, "Pooling", {"kernel": (2, 2)}),
    "memonger_batch_norm_relu": ({}, "BatchNorm", {}),
    "memonger_inplace_batch_norm": ({}, "BatchNorm", {}),
    "memonger_layer_norm": ({}, "LayerNorm", {}),
}


def inferred(op, attributes, shapes):
    """Shapes by name, as far as they follow from some that are not whole."""
    import mxnet as mx
    load_plugin()
    net = getattr(mx.sym, op)(mx.sym.Variable("x"), name="op0", **attributes)
    if "z" in shapes:
        net = mx.sym.elemwise_add(net, mx.sym.Variable("z"))
    arguments, outputs, states = net.infer_shape_partial(**shapes)
    return dict(zip(net.list_arguments() + net.list_auxiliary_states() + ["output"],
                    arguments + states + outputs))


@pytest.mark.parametrize("shapes", [
    {"x": (0, 4, 5, 6)}, {"x": (3, 0, 5, 6)}, {"x": (3, 4, 0, 6)},
    {"x": (0, 4, 5, 6), "z": (3, 4, 0, 0)}], ids=str)
@pytest.mark.parametrize("op", STOCK)
def test_shapes_that_are_known_in_part(op, shapes):
    """Nothing that MXNet's operator infers is lost."""
    if op == "memonger_max_pool" and ("z" in shapes or shapes["x"][2] == 0):
        pytest.skip("MXNet's Pooling takes a size that is not known for -1")
    attributes, stock, stock_attributes = STOCK[op]
    expected = call(inferred, stock, stock_attributes, shapes)
    found = call(inferred, op, attributes, shapes)
    assert found.keys() == expected.keys()
    for name, shape in expected.items():
        assert len(found[name]) == len(shape)
        assert all(ours == theirs or theirs == 0 for ours, theirs in zip(found[name], shape)), name


def test_parameters_of_the_fused_convolution_follow_from_data_without_a_batch():
    found = call(inferred, "memonger_bn_relu_convolution", CONVOLUTION,
                 {"x": (0, 4, 5, 6)})
    assert found["op0_gamma"] == found["op0_moving_var"] == (4,)
    assert found["op0_weight"] == (2, 4, 3, 3) and found["output"] == (0, 2, 3, 4)
