"""The budget "auto", and GPUs that are not there."""
from __future__ import annotations

import pytest

import memonger
from memonger.mx.memory.stated_gpu import free_bytes, place, resolve_budget
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


def _network():
    x = mx.sym.Variable("data")
    for layer in range(10):
        x = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=8, name="conv%d" % layer)
        x = mx.sym.Activation(x, act_type="relu", name="relu%d" % layer)
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=10), name="softmax")


def test_a_gpu_that_is_not_there_is_planned_for():
    shapes = {"data": (64, 3, 32, 32), "softmax_label": (64,)}
    here = memonger.estimate(_network(), **shapes)
    there = memonger.estimate(_network(), device="rtx3090", **shapes)
    extra = {"rounding", "random_states", "autotuning"}
    assert extra <= set(there.by_category) and not extra & set(here.by_category)
    assert there.by_category["parameters"] == here.by_category["parameters"]
    plan = memonger.plan(_network(), "80%", device="rtx3090", time_limit=0.2, **shapes)
    assert plan.costs == "roofline: rtx3090"
    assert plan.total_bytes <= plan.budget_bytes == int(0.8 * there.total_bytes)
    found = memonger.max_batch(_network(), "40MB", device="t4", method="sublinear", **shapes)
    assert found.planned >= found.unplanned > 1


@pytest.mark.parametrize("budget", ["90%", "99%"])
def test_where_pages_take_what_variants_save_the_plan_has_none(budget):
    x = mx.sym.Variable("data")
    for layer in range(3):
        x = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=16, no_bias=True,
                               name="conv%d" % layer)
        x = mx.sym.BatchNorm(x, fix_gamma=False, name="norm%d" % layer)
        x = mx.sym.Activation(x, act_type="relu", name="relu%d" % layer)
    x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    x = mx.sym.FullyConnected(mx.sym.Dropout(x, name="drop"), num_hidden=10, name="dense")
    plan = memonger.plan(mx.sym.SoftmaxOutput(x, name="softmax"), budget, device="v100",
                         time_limit=1, data=(32, 3, 32, 32))
    assert plan.total_bytes <= plan.budget_bytes


def test_auto_is_the_memory_of_a_stated_gpu():
    assert free_bytes(place(None, "rtx3090")) == int(0.95 * 23e9)


def test_unknown_gpus_and_two_places_are_refused():
    with pytest.raises(InputError, match="no GPU 'rtx9'; there are p100, "):
        place(None, "rtx9")
    with pytest.raises(InputError, match="not both"):
        place(mx.cpu(), "t4")


def test_a_budget_that_rounding_exceeds_is_infeasible():
    shapes = {"data": (2, 3, 8, 8), "softmax_label": (2,)}
    with pytest.raises(memonger.errors.InfeasibleBudget) as caught:
        memonger.plan(_network(), "40KB", device="t4", time_limit=0.1, **shapes)
    assert caught.value.minimum_bytes > caught.value.budget_bytes


def test_the_least_memory_counts_the_room_for_tuning():
    """An arena is there while convolutions are tuned: whole buffers may take less in all."""
    shapes = {"data": (32, 3, 32, 32), "softmax_label": (32,)}
    least = memonger.plan(_network(), device="rtx3090", time_limit=0.5, **shapes)
    assert least.total_bytes < 0.7 * least.baseline_total_bytes
    again = memonger.plan(_network(), least.total_bytes, device="rtx3090", time_limit=0.2,
                          **shapes)
    assert again.total_bytes <= least.total_bytes
