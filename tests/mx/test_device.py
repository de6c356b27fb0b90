"""The budget "auto"."""
from __future__ import annotations

import pytest

from memonger.mx.device import free_bytes, resolve_budget
from memonger.util.errors import InputError

mx = pytest.importorskip("mxnet")


def test_auto_is_what_the_named_gpu_has_free_less_the_reserve(monkeypatch):
    asked = []

    def gpu_memory_info(device_id):
        asked.append(device_id)
        return 10 * 10**9, 16 * 10**9
    monkeypatch.setattr(mx.context, "gpu_memory_info", gpu_memory_info)
    assert resolve_budget("auto", mx.gpu(3)) == pytest.approx(9.5e9, rel=1e-9)
    assert asked == [3]


@pytest.mark.parametrize("budget", [None, "4GB", "60%", 0.5, 10**9])
def test_other_budgets_stay_as_they_are(budget):
    assert resolve_budget(budget, mx.cpu()) == budget


def test_auto_without_a_gpu_says_what_to_do():
    for ctx in (None, mx.cpu()):
        with pytest.raises(InputError, match="--ctx gpu"):
            free_bytes(ctx)


def test_a_gpu_that_does_not_answer_says_what_to_do(monkeypatch):
    def gpu_memory_info(device_id):
        raise mx.MXNetError("no CUDA-capable device is detected")
    monkeypatch.setattr(mx.context, "gpu_memory_info", gpu_memory_info)
    with pytest.raises(InputError, match="no CUDA-capable device is detected.*such as 8GB"):
        free_bytes(mx.gpu())
