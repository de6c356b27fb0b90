"""Every operator called by hand: ``mx.sym``, ``mx.nd`` with autograd, Gluon; and its errors."""
from __future__ import annotations

import numpy as np
import pytest
from needed import needs_plugin

from memonger.mx.symbol import swap as variants
from ops.runner import call, load_plugin, same_bits

pytestmark = needs_plugin

NORM = {"fix_gamma": False}
CONVOLUTION = {"kernel": (3, 3), "num_filter": 2}
#: Operator: attributes, and those of its inputs (behind the first) that are not learned.
CALLS = {
    "memonger_mask_relu": ({}, 0), "memonger_mask_leaky_relu": ({"slope": 0.2}, 0),
    "memonger_mask_clip": ({"a_min": -1, "a_max": 1}, 0),
    "memonger_mask_dropout": ({"p": 0.3}, 0), "memonger_max_pool": ({"kernel": (2, 2)}, 0),
    "memonger_avg_pool": ({"kernel": (2, 2), "pool_type": "avg"}, 0),
    "memonger_batch_norm_relu": (NORM, 2), "memonger_inplace_batch_norm": (NORM, 2),
    "memonger_bn_relu_convolution": ({**NORM, **CONVOLUTION, "micro_batch": 2}, 2),
    "memonger_split_convolution": (CONVOLUTION, 0),
    "memonger_layer_norm": ({}, 0), "memonger_gelu": ({}, 0),
    "memonger_activation": ({"act_type": "tanh"}, 0),
    "memonger_concat": ({"dim": 1}, 0),
}
SHAPE = (3, 4, 5, 6)


def applied(F, op, x, parameters):
    inputs = [x, x + 1] if op == "memonger_concat" else [x, *parameters]
    return getattr(F, op)(*inputs, **CALLS[op][0])


def shapes_of(op):
    """Shapes of the inputs behind the data, each with whether it is a state."""
    import mxnet as mx
    symbol = getattr(mx.sym, op)(mx.sym.Variable("x"), name="op0", **CALLS[op][0])
    if op == "memonger_concat":
        return {}
    arguments, _, states = symbol.infer_shape(x=SHAPE)
    learned = dict(zip(symbol.list_arguments()[1:], arguments[1:]))
    states = dict(zip(symbol.list_auxiliary_states(), states))
    assert len(states) == CALLS[op][1]
    names = [name for name in symbol.list_inputs() if name != "x"]
    return {name: ({**learned, **states}[name], name in states) for name in names}


def everywhere(op):
    """Output and gradients of one step by each way of calling."""
    import mxnet as mx
    load_plugin()
    shapes = shapes_of(op)
    random = np.random.RandomState(0)
    x = random.randn(*SHAPE).astype("float32")
    values = {name: random.uniform(0.5, 1.5, shape).astype("float32")
              for name, (shape, _) in shapes.items()}

    class Block(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            for name, (shape, is_state) in shapes.items():
                setattr(self, name, self.params.get(name, shape=shape,
                                                    grad_req="null" if is_state else "write"))

        def hybrid_forward(self, F, x, **parameters):
            return applied(F, op, x, [parameters[name] for name in shapes])

    def recorded(run, arrays):
        data = mx.nd.array(x)
        data.attach_grad()
        mx.random.seed(0)
        with mx.autograd.record():
            output = run(data)
        output.backward()
        return {"output": output.asnumpy(), "x": data.grad.asnumpy(),
                **{name: gradient().asnumpy() for name, gradient in arrays.items()}}

    def eager():
        arrays = {name: mx.nd.array(value) for name, value in values.items()}
        learned = [name for name in shapes if not shapes[name][1]]
        for name in learned:
            arrays[name].attach_grad()
        return recorded(lambda data: applied(mx.nd, op, data, list(arrays.values())),
                        {name: (lambda name=name: arrays[name].grad) for name in learned})

    def gluon(**how):
        block = Block()
        block.initialize()
        for name, value in values.items():
            getattr(block, name).set_data(mx.nd.array(value))
        if how:
            block.hybridize(**how)
        return recorded(block, {name: getattr(block, name).grad for name in shapes
                                if not shapes[name][1]})

    def symbolic():
        data = mx.sym.Variable("x")
        net = applied(mx.sym, op, data, [mx.sym.Variable(name) for name in shapes])
        executor = net.simple_bind(mx.cpu(), x=SHAPE)
        executor.copy_params_from({"x": mx.nd.array(x), **{
            n: mx.nd.array(v) for n, v in values.items() if not shapes[n][1]}},
            {n: mx.nd.array(v) for n, v in values.items() if shapes[n][1]})
        mx.random.seed(0)
        output = executor.forward(is_train=True)[0]
        executor.backward(mx.nd.ones_like(output))
        return {"output": output.asnumpy(), **{name: gradient.asnumpy() for name, gradient
                                               in executor.grad_dict.items()}}
    return {"nd": eager(), "sym": symbolic(), "gluon": gluon(),
            "hybrid": gluon(static_alloc=False),
            "static": gluon(static_alloc=True, static_shape=True)}


def test_no_operator_is_left_out():
    assert set(CALLS) == {kind.op for kind in variants.catalogue()}
    assert set(CALLS) == set(call(our_operators))


def our_operators():
    import mxnet as mx
    load_plugin()
    return [name for name in mx.operator.get_all_registered_operators()
            if name.startswith("memonger_")]


@pytest.mark.parametrize("op", CALLS)
def test_all_ways_of_calling_give_the_same(op):
    found = call(everywhere, op)
    assert np.abs(found["nd"]["x"]).max() > 0
    for way in found:
        assert same_bits(found["nd"], found[way]) is None, way


#: Those of CALLS that MXNet lets work on a map without elements.
EMPTY = [op for op in CALLS if "convolution" not in op and "pool" not in op]


def on_nothing(op, shape):
    """Shapes of output and gradient; arrays of no elements exist under ``np_shape`` only."""
    import mxnet as mx
    load_plugin()
    with mx.util.np_shape(True):
        data = mx.nd.zeros(shape)
        data.attach_grad()
        channels = shape[-1 if op == "memonger_layer_norm" else 1]
        count = {"memonger_layer_norm": 2}.get(op, 4 if "batch_norm" in op else 0)
        parameters = [mx.nd.ones((channels,)) for _ in range(count)]
        if "convolution" in op:
            parameters = [mx.nd.ones((2, channels, 3, 3)), mx.nd.ones((2,))]
        with mx.autograd.record():
            output = applied(mx.nd, op, data, parameters)
        output.backward()
        mx.nd.waitall()
        return output.shape, data.grad.shape


@pytest.mark.parametrize("op", EMPTY)
def test_arrays_without_elements(op):
    for shape in ((0, 4, 5, 6), (3, 4, 0, 6)):
        output, gradient = call(on_nothing, op, shape)
        assert gradient == shape and 0 in output


def test_a_split_convolution_of_no_channels():
    assert call(on_nothing, "memonger_split_convolution", (2, 0, 5, 6)) == (
        (2, 2, 3, 4), (2, 0, 5, 6))
