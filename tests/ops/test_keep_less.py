"""Operators of MXNet with gradients that keep less: the same bits over shapes and attributes."""
from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from needed import needs_plugin

from memonger import native
from ops.runner import Case, call, run, same_bits

pytestmark = needs_plugin

ACTIVATIONS = [("Activation", "memonger_activation", {"act_type": name})
               for name in ("sigmoid", "tanh")]
CASES = {"dtype": st.sampled_from(["float32", "float64", "float16"]),
         "grad_req": st.sampled_from(["write", "add", "null"]), "inner": st.booleans(),
         "values": st.sampled_from(["normal", "ties", "special"])}


def compare(stock, ours, attributes, **case):
    left = call(run, Case([(stock, attributes)], **case))
    right = call(run, Case([(ours, attributes)], **case))
    if isinstance(left, str):  # MXNet refuses it, so do we
        assert isinstance(right, str), left
        return None
    assert isinstance(right, dict), right
    return same_bits(left, right)


@given(st.sampled_from(ACTIVATIONS), st.lists(st.integers(1, 9), min_size=2, max_size=4),
       st.fixed_dictionaries(CASES))
def test_activations_fuzzed(kinds, shape, case):
    stock, ours, attributes = kinds
    assert compare(stock, ours, attributes, shape=tuple(shape), **case) is None


@st.composite
def poolings(draw):
    axes = draw(st.integers(1, 3))

    def each(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(axes))
    attributes = {"kernel": each(1, 4), "stride": each(1, 3), "global_pool": draw(st.booleans()),
                  "pool_type": draw(st.sampled_from(["avg", "sum"])),
                  "pooling_convention": draw(st.sampled_from(["valid", "full"])),
                  "count_include_pad": draw(st.booleans())}
    attributes["pad"] = tuple(draw(st.integers(0, size - 1)) for size in attributes["kernel"])
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 4)), *each(1, 9))
    if draw(st.booleans()):
        attributes["layout"] = ("NWC", "NHWC", "NDHWC")[axes - 1]
    return shape, attributes


@given(poolings(), st.fixed_dictionaries(CASES))
def test_average_pooling_fuzzed(example, case):
    shape, attributes = example
    assert compare("Pooling", "memonger_avg_pool", attributes, shape=shape, **case) is None


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
