"""memonger_convolution: MXNet's own Convolution on parts of a batch, bit for bit."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from needed import needs_plugin

from memonger import native
from ops.runner import Case, call, error_against, run, same_bits

pytestmark = needs_plugin


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
    shape = (draw(st.integers(1, 5)), groups * draw(st.integers(1, 3)), *each(5, 8))
    return (shape, attributes, draw(st.integers(0, 6)),
            draw(st.sampled_from(["float32", "float64"])),
            draw(st.sampled_from(["write", "add", "null"])))


@given(convolutions())
def test_same_bits_fuzzed(example):
    shape, attributes, micro_batch, dtype, grad_req = example
    case = {"shape": shape, "dtype": dtype, "grad_req": grad_req, "steps": 2}
    stock = call(run, Case([("Convolution", attributes)], **case))
    ours = call(run, Case([("memonger_convolution", dict(attributes, micro_batch=micro_batch))],
                          **case))
    assert isinstance(stock, dict), stock
    assert isinstance(ours, dict), ours
    assert same_bits(stock, ours) is None


def samples_at_a_time(settings, shape):
    """Told by the buffer of the operator that makes the convolution's input again."""
    import mxnet as mx

    from memonger.mx.capture import read
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


def test_parts_of_some_bytes():
    """Samples of 1.4 MB: each is too large by itself, or two parts of two."""
    attributes = {"kernel": (1, 1), "num_filter": 3}
    for micro_batch_mb in (1, 5):
        for dtype in ("float32", "float64"):
            case = {"shape": (4, 6, 200, 201), "dtype": dtype}
            stock = call(run, Case([("Convolution", attributes)], **case))
            ours = call(run, Case([("memonger_convolution",
                                    dict(attributes, micro_batch_mb=micro_batch_mb))], **case))
            assert same_bits(stock, ours) is None


def test_settings_of_each_direction_are_convolutions():
    attributes = {"kernel": (3, 3), "num_filter": 4, "workspace": 64, "cudnn_tune": "off",
                  "backward_data_workspace": 32, "backward_data_cudnn_tune": "fastest",
                  "backward_filter_workspace": 16,
                  "backward_filter_cudnn_tune": "limited_workspace"}
    result = call(run, Case([("memonger_convolution", attributes)], shape=(2, 3, 6, 6)))
    assert isinstance(result, dict), result


def with_mkldnn():
    attributes = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 16}
    results = []
    for op, more in (("Convolution", {}), ("memonger_convolution", {"micro_batch": 3}),
                     ("memonger_convolution", {})):
        chain = [("Convolution", attributes), (op, dict(attributes, **more)), ("relu", {})]
        results.append(run(Case(chain, shape=(8, 16, 14, 14), grad_req="add", steps=2)))
    return results


def test_with_mkldnn_in_front_and_behind():
    """MKLDNN's layouts come in and go out; sums of parts differ in the last bits there."""
    stock, parts, whole = call(with_mkldnn, mkldnn=True)
    exact = {name: value.astype("float64") for name, value in stock.items()}
    assert max(error_against(parts, exact).values()) < 3e-6
    assert max(error_against(whole, exact).values()) < 3e-6


def test_native_workspace_is_one_sample_however_large_the_batch():
    from memonger.graph.types import Graph, Op, Tensor
    from memonger.memory.workspace import native_workspaces

    def workspace(batch, kernel, **attributes):
        shapes = [(batch, 8, 10, 10), (16, 8, kernel, kernel), (batch, 16, 10, 10)]
        graph = Graph(tuple(Tensor(str(i), 4 * int(np.prod(shape)), 0 if i == 2 else -1,
                                   shape=shape) for i, shape in enumerate(shapes)),
                      (Op("c", "Convolution", (0, 1), (2,)),), (2,))
        return native_workspaces(graph, [{"kernel": str((kernel, kernel)), **attributes}])
    assert workspace(1, 3) == workspace(64, 3) == (8 * 9 * 100 * 4,)
    assert workspace(4, 1) == (0,) and workspace(4, 1, stride="(2, 2)") == (8 * 100 * 4,)
