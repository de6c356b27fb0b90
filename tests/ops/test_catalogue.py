"""Every variant of the catalogue, with every attribute of the operators that it replaces.

One table of chains serves all: each is checked by finite differences in float64 and against
MXNet's operators over shapes, dtypes and requests. What the table leaves out fails a test.
"""
from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Dict, List, Set

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from needed import needs_plugin

from memonger.mx.symbol import swap as variants
from ops.runner import Case, _train, call, data, load_plugin, parameter, same_bits

pytestmark = needs_plugin

RELUS = (("relu", {}), ("Activation", {"act_type": "relu"}))
NORMS = ({"fix_gamma": False}, {"fix_gamma": True, "cudnn_off": True},
         {"fix_gamma": False, "eps": 0.1, "momentum": 0.5},
         {"fix_gamma": False, "use_global_stats": True}, {"fix_gamma": False, "axis": 3})
CONVOLUTIONS = ({"num_filter": 2, "kernel": (2, 2)},
                {"num_filter": 4, "kernel": (2, 1), "stride": (2, 1), "pad": (1, 0),
                 "num_group": 2, "no_bias": True},
                {"num_filter": 3, "kernel": (2, 2), "dilate": (1, 2), "pad": (1, 1),
                 "layout": "NCHW", "workspace": 64, "cudnn_tune": "off", "cudnn_off": True})
POOLINGS = ({"kernel": (2, 2)}, {"kernel": (2, 1), "stride": (2, 2), "pad": (1, 0)},
            {"kernel": (3, 2), "stride": (2, 2), "pooling_convention": "full"},
            {"kernel": (1, 1), "global_pool": True, "cudnn_off": True},
            {"kernel": (2, 2), "layout": "NHWC"})


CHAINS: Dict[str, List] = {
    "mask_relu": [[relu] for relu in RELUS],
    "mask_leaky_relu": [[("LeakyReLU", attributes)] for attributes in (
        {}, {"act_type": "leaky", "slope": 0.0}, {"slope": 0.7})],
    "mask_clip": [[("clip", {"a_min": low, "a_max": high})]
                  for low, high in ((0, 6), (-1, 1), (-1, 1.5))],
    "mask_dropout": [[("Dropout", attributes)] for attributes in (
        {"p": 0.4, "cudnn_off": True}, {"p": 0}, {"mode": "always"})],
    "max_pool": [[("Pooling", dict(pooling, pool_type="max"))] for pooling in POOLINGS],
    "avg_pool": [[("Pooling", dict(pooling, **more))] for pooling, more in zip(POOLINGS, (
        {"pool_type": "avg"}, {"pool_type": "avg", "count_include_pad": False},
        {"pool_type": "sum"}, {"pool_type": "sum"}, {"pool_type": "avg", "p_value": 2}))],
    "batch_norm_relu": [[("BatchNorm", norm), RELUS[i % 2]] for i, norm in enumerate(NORMS)],
    "bn_relu_convolution": [
        [("BatchNorm", norm), RELUS[i % 2], ("Convolution", CONVOLUTIONS[i % 3])]
        for i, norm in enumerate(NORMS)],
    "inplace_batch_norm": [[("BatchNorm", norm)] for norm in NORMS],
    "inplace_batch_norm_leaky": [
        [("BatchNorm", norm), ("LeakyReLU", {"act_type": "leaky", "slope": (0.5, 0.8)[i % 2]})]
        for i, norm in enumerate(NORMS)],
    "layer_norm": [[("LayerNorm", attributes)] for attributes in (
        {}, {"axis": 1, "eps": 1e-3}, {"axis": 0})],
    **{prefix + name: [[("Activation", {"act_type": name})]] for prefix, name in (
        ("output_", "sigmoid"), ("output_", "tanh"))},
    "output_gelu": [[("LeakyReLU", {"act_type": "gelu"})]],
    "concat": [[(op, attributes)] for op in ("Concat", "concat")
               for attributes in ({}, {"dim": 0}, {"dim": -1})],
    "split_convolution": [[("Convolution", {name: value for name, value in attributes.items()
                                            if name != "cudnn_off"})]
                          for attributes in CONVOLUTIONS],
}

#: Attributes that do nothing in the ops that a variant replaces.
WITHOUT_EFFECT = {
    ("LeakyReLU", "lower_bound"): "rrelu's", ("LeakyReLU", "upper_bound"): "rrelu's",
    ("Pooling", "p_value"): "lp pooling's", ("Pooling", "count_include_pad"): "average pooling's",
    ("LeakyReLU", "slope"): "gelu has none",
    ("Concat", "num_args"): "set by MXNet", ("concat", "num_args"): "set by MXNet",
}
#: Values that make a variant refuse the chain.
REFUSED = {"act_type": "rrelu", "pool_type": "lp", "output_mean_var": "True",
           "min_calib_range": "0.0", "max_calib_range": "1.0"}
#: Attributes that one variant refuses.
REFUSED_BY = {("split_convolution", "cudnn_off"): "True", ("mask_dropout", "axes"): "(1,)"}
RENAMED = {("bn_relu_convolution", 0, "cudnn_off"): "bn_cudnn_off"}


def attributes_of(op: str) -> Set[str]:
    """Names of the attributes that MXNet documents."""
    from mxnet.base import _LIB, check_call, mx_uint, py_str
    handle, count = ctypes.c_void_p(), mx_uint()
    check_call(_LIB.NNGetOpHandle(op.encode(), ctypes.byref(handle)))
    texts = [ctypes.c_char_p() for _ in range(4)]
    lists = [ctypes.POINTER(ctypes.c_char_p)() for _ in range(3)]
    check_call(_LIB.MXSymbolGetAtomicSymbolInfo(
        handle, *map(ctypes.byref, [*texts[:2], count, *lists, *texts[2:]])))
    return {py_str(lists[0][i]) for i in range(count.value)
            if not py_str(lists[1][i]).startswith(("NDArray", "Symbol"))}


@pytest.mark.parametrize("kind", variants.catalogue(), ids=lambda kind: kind.name)
def test_every_attribute_is_honoured_or_refused(kind):
    for place, ops in enumerate(kind.chain):
        for op in ops:
            for name in attributes_of(op):
                chain = [{"slope": "0.5"} for _ in kind.chain]
                chain[place] = {"act_type": "relu"} if name == "act_type" else {name: "1"}
                new_name = RENAMED.get((kind.name, place, name), name)
                if new_name in kind.attributes(chain):
                    continue
                refused = [dict(one) for one in chain]
                value = REFUSED.get(name, REFUSED_BY.get((kind.name, name)))
                refused[place] = {name: value or "1"}
                assert kind.refusal(refused) if value else (op, name) in WITHOUT_EFFECT


@pytest.mark.parametrize("kind", variants.catalogue(), ids=lambda kind: kind.name)
def test_the_table_has_every_operator_and_attribute(kind):
    for place, ops in enumerate(kind.chain):
        used = [chain[place] for chain in CHAINS[kind.name]]
        assert {op for op, _ in used} == set(ops)
        for op in ops:
            for name in attributes_of(op) - set(REFUSED):
                if (op, name) not in WITHOUT_EFFECT and (kind.name, name) not in REFUSED_BY:
                    assert any(name in attributes for _, attributes in used), (op, name)


def train(kind: str, chain, swapped: bool, case: Case):
    """One training bind of MXNet's chain, or of the variant in its place."""
    load_plugin()
    return _train(symbol(kind, chain, swapped), case)


def symbol(kind: str, chain, swapped: bool):
    import mxnet as mx
    net = mx.sym.Variable("x") * 1.0
    for place, (op, attributes) in enumerate(chain):
        inputs = [net, net * 2.0 + 1.0] if op.lower() == "concat" else [net]
        net = getattr(mx.sym, op)(*inputs, name="op%d" % place, **attributes)
    return mx.sym.load_json(variants.swap_json(
        net.tojson(), {"op%d" % (len(chain) - 1): kind})) if swapped else net


def gradients(kind: str, chain, shape, step: float):
    """Gradients of all arguments, ours and by central differences."""
    import mxnet as mx
    case = Case((), shape=shape, dtype="float64")
    ours = train(kind, chain, True, case)
    executor = symbol(kind, chain, True).simple_bind(mx.cpu(), grad_req="null", x=shape,
                                                     type_dict={"x": "float64"})
    values = {name: data(case) if name == "x" else parameter(case, name, array.shape)
              for name, array in executor.arg_dict.items()}
    for name, array in executor.aux_dict.items():
        array[:] = 1 if name.endswith("var") else 0

    def set_to(name: str) -> None:
        executor.arg_dict[name][:] = mx.nd.array(values[name], dtype="float64")

    def loss() -> float:
        mx.random.seed(case.seed)
        output = executor.forward(is_train=True)[0].asnumpy()
        return float((output * np.random.RandomState(case.seed + 5).randn(*output.shape)).sum())
    for name in values:
        set_to(name)
    result = {}
    for name, value in values.items():
        expected = np.zeros(value.shape)
        for index in np.ndindex(*value.shape):
            middle, ends = value[index], []
            for sign in (1, -1):
                value[index] = middle + sign * step
                set_to(name)
                ends.append(loss())
            value[index] = middle
            expected[index] = (ends[0] - ends[1]) / (2 * step)
        set_to(name)
        result[name] = ours["gradient of " + name], expected
    return result


@pytest.mark.parametrize("kind, chain", [(kind, chain) for kind, chains in CHAINS.items()
                                         for chain in chains], ids=str)
def test_finite_differences_of_all_arguments(kind, chain):
    # LeakyReLU rounds to float32 whatever the dtype.
    step, limit = (1e-3, 2e-3) if kind == "mask_leaky_relu" else (1e-6, 1e-5)
    for name, (found, expected) in call(gradients, kind, chain, (2, 4, 3, 4), step).items():
        assert np.abs(found - expected).max() < limit * max(1.0, np.abs(expected).max()), name


@settings(max_examples=100)
@given(st.sampled_from(sorted(CHAINS)), st.data())
def test_as_mxnets_over_shapes_dtypes_and_requests(kind, drawn):
    chain = drawn.draw(st.sampled_from(CHAINS[kind]))
    shape = tuple(drawn.draw(st.tuples(st.integers(1, 4), st.sampled_from([2, 4, 6]),
                                       st.integers(3, 9), st.integers(3, 9))))
    dtype = drawn.draw(st.sampled_from(["float32", "float64", "float16"]))
    if dtype == "float16" and "onvolution" in kind:
        dtype = "float32"  # MXNet has no such convolution on CPUs
    case = Case((), shape=shape, dtype=dtype,
                grad_req=drawn.draw(st.sampled_from(["write", "add", "null"])),
                seed=drawn.draw(st.integers(0, 3)))
    stock, ours = (call(train, kind, chain, swapped, case) for swapped in (False, True))
    if variants.kind(kind).exact:
        assert same_bits(stock, ours) is None
        return
    exact = call(train, kind, chain, False, replace(case, dtype="float64"))
    assert stock.keys() == ours.keys()
    for name, value in exact.items():
        # A value next to zero has another sign in another dtype, and its gradient another slope.
        error = np.abs(ours[name].astype("float64") - value)
        theirs = np.abs(stock[name].astype("float64") - value)
        scale = np.abs(value).max() + 1
        limit = {"float16": 2e-2, "float32": 2e-5, "float64": 1e-6}[dtype] * scale
        assert (error > limit).sum() <= (theirs > limit).sum() + error.size // 50, name
