"""The table of operators: bytes kept are those of the bound graph, ours never more."""
from __future__ import annotations

import pytest
from needed import needs_plugin

from memonger import native

pytest.importorskip("mxnet")
pytestmark = needs_plugin


def test_a_row_of_mask_relu_and_of_max_pool():
    from memonger.bench.operators import SUBJECTS, measure, table
    native.load()
    relu = measure(next(s for s in SUBJECTS if s.variant == "mask_relu"), (2, 4, 16, 16), 1)
    assert relu.kept_bytes == (2 * 4 * 16 * 16 * 4, 2 * 4 * 16 * 16 // 8)
    assert relu.errors[1] <= relu.errors[0] + 1e-7
    pool = measure(next(s for s in SUBJECTS if s.variant == "max_pool"), (2, 4, 16, 16), 1)
    assert pool.kept_bytes[1] == 2 * 4 * 8 * 8 // 2
    assert len(table([relu, pool]).splitlines()) == 4


def test_what_kinds_save_in_a_network():
    from memonger.bench.savings import savings, table
    found = savings("attention_small", 4)
    assert found["pool"] > 0 and found["mask_dropout"] > 0.05
    text = table([("attention_small", 4)])
    assert "| mask_dropout | " in text and "| Embedding | " in text


def test_what_operators_that_were_not_built_could_save_at_most():
    """Bounds: no less than what operators of the catalogue save, and zero for views."""
    from memonger.bench.savings import NOT_BUILT, at_most
    found = at_most("attention_small", 4)
    views = next(item for item in NOT_BUILT if "transpose" in item.kinds)
    softmax = next(item for item in NOT_BUILT if "softmax" in item.kinds)
    assert found[views] == 0.0 and 0.01 < found[softmax] < 0.5


def test_a_gradient_that_keeps_nothing_frees_what_it_alone_keeps():
    import mxnet as mx

    from memonger.bench.savings import keeping_nothing
    from memonger.graph.schedule import expand
    from memonger.memory.storage import plan_storage
    from memonger.mx.capture import read
    value = mx.sym.Variable("data") * 1.0
    for _ in range(6):  # adding keeps nothing, so tanh alone keeps its input and output
        value = mx.sym.tanh(value + 1.0)
    graph = read(value, shapes={"data": (256, 256)}).graph
    ops = {i for i, op in enumerate(graph.ops) if op.kind == "tanh"}
    pools = [plan_storage(one, expand(one, {}), "stock").pool_bytes
             for one in (graph, keeping_nothing(graph, ops))]
    assert pools[0] >= 6 * 256 * 256 * 4 and pools[1] <= 3 * 256 * 256 * 4


def test_bn_relu_convolution_alone_makes_a_third_of_resnet50_v2_free():
    from memonger.bench.savings import savings
    assert savings("resnet50_v2", 2)["bn_relu_convolution"] > 0.3
