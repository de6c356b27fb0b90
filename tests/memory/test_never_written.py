"""What MXNet allocates and never writes, without MKLDNN on a CPU."""
from __future__ import annotations

import json

import mxnet as mx
import pytest

import memonger
from memonger.mx.check.measure import allocated_bytes
from memonger.plans import plan_file
from memonger.plans.plan import Status
from memonger.util.errors import PlanSchemaError

#: The second output of a max pooling has as many bytes: 16 MiB.
SHAPES = {"data": (4, 16, 256, 256)}
THREE = 3 * 16 << 20


def pools(kind="max"):
    """Three poolings, each behind an activation that its gradient reads."""
    x = mx.sym.Variable("data")
    for _ in range(3):
        x = mx.sym.Pooling(x, kernel=(3, 3), stride=(1, 1), pad=(1, 1), pool_type=kind)
        x = mx.sym.Activation(x, act_type="tanh")
    return mx.sym.MakeLoss(mx.sym.sum(x))


@pytest.fixture
def without_mkldnn(monkeypatch):
    monkeypatch.setenv("MXNET_MKLDNN_ENABLED", "0")


def test_second_outputs_of_max_pooling_are_never_resident(without_mkldnn):
    found = memonger.estimate(pools(), shapes=SHAPES)
    assert found.by_category["never_written"] == -THREE
    assert abs(allocated_bytes(pools(), SHAPES) - found.total_bytes) < THREE // 4


def test_a_budget_counts_from_what_is_resident(without_mkldnn):
    total_bytes = memonger.estimate(pools(), shapes=SHAPES).total_bytes
    half = memonger.plan(pools(), "60%", shapes=SHAPES, costs="reference")
    assert half.baseline_total_bytes == total_bytes
    assert half.total_bytes <= half.budget_bytes == int(0.6 * total_bytes)
    same = memonger.plan(pools(), "100%", shapes=SHAPES, costs="reference")
    assert same.status is Status.NOT_NEEDED and same.total_bytes <= total_bytes


@pytest.mark.parametrize("mkldnn, kind", [("1", "max"), ("0", "avg")])
def test_what_is_written_counts(monkeypatch, mkldnn, kind):
    monkeypatch.setenv("MXNET_MKLDNN_ENABLED", mkldnn)
    assert "never_written" not in memonger.estimate(pools(kind), shapes=SHAPES).by_category


def test_a_file_cannot_make_it_up(without_mkldnn):
    plan = memonger.plan(pools(), "60%", shapes=SHAPES, costs="reference")
    data = json.loads(plan_file.dumps(plan))
    assert plan_file.loads(json.dumps(data)).baseline_fixed_bytes["never_written"] == -THREE
    data["baseline_fixed_bytes"]["never_written"] -= 4
    data["checksum"] = plan_file.checksum(data)
    with pytest.raises(PlanSchemaError, match="never written"):
        plan_file.loads(json.dumps(data))
