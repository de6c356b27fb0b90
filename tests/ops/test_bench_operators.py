"""The table of operators: bytes kept are those of the bound graph, ours never more."""
from __future__ import annotations

import pytest

from memonger import native

pytest.importorskip("mxnet")
pytestmark = pytest.mark.skipif(not (native.folder() / "libmemonger_mxnet.so").exists(),
                                reason="the plugin is not built")


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


def test_bn_relu_convolution_alone_makes_a_third_of_resnet50_v2_free():
    from memonger.bench.savings import savings
    assert savings("resnet50_v2", 2)["bn_relu_convolution"] > 0.3
