"""``budget="knee"`` plans a module's step where less memory starts to cost more time."""
from __future__ import annotations

import re

import pytest
from torch_nets import Attention, Convolutions, images, sentences

import memonger.torch as mt


def share_of(plan) -> str:
    """The share that a plan's note names."""
    note, = (note for note in plan.notes if "knee" in note)
    return re.search(r"is at (\d+%) of the unplanned total", note).group(1)


@pytest.mark.parametrize("mode", ["eager", "inductor"])
def test_a_module_is_planned_at_its_knee(mode):
    module, x = Attention(layers=2), sentences()
    plan = mt.plan(module, x, "knee", mode, time_limit=1)
    share = share_of(plan)
    assert plan.total_bytes <= plan.budget_bytes < plan.baseline_total_bytes
    assert plan.options["budget"] == share
    assert mt.plan(module, x, share, mode, time_limit=1).budget_bytes == plan.budget_bytes


def test_a_module_with_chunks_of_its_loss_is_planned_at_the_knee_of_the_other():
    plan = mt.plan(Attention(layers=1), sentences(), "knee", "eager", variants="all", time_limit=2)
    assert plan.options["budget"] == share_of(plan)


@pytest.mark.parametrize("mode", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_module_trains_at_the_knee_of_its_first_step(mode):
    module, x = Convolutions(dropout=0.0), images()
    step = mt.compile(module, "knee", mode, time_limit=1)
    assert mt.verify(step, module, x, steps=1).ok
    first = mt.plans(step)[0]
    assert share_of(first) and first.total_bytes <= first.budget_bytes
    step(*images(batch=8)).backward()
    assert {plan.budget_bytes for plan in mt.plans(step)} == {first.budget_bytes}
