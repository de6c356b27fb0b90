"""The logger ``memonger.torch``: one line for each plan that is to run, and for each new one."""
from __future__ import annotations

import logging

import pytest
import torch
from torch_nets import Attention, Convolutions, images, sentences

import memonger.torch as mt
from memonger.torch.step import inductor


@pytest.fixture
def said(caplog):
    """Lines so far."""
    caplog.set_level(logging.INFO, "memonger.torch")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "memonger.torch"]


@pytest.mark.parametrize("options", [
    {"budget": "75%"}, {"budget": "knee", "time_limit": 2}, {}, {"budget": "150%"},
    {"budget": "90%", "variants": "all"}, {"budget": "80%", "host": "1GB", "link": "25TB/s"}])
def test_a_plan_is_one_line(said, options):
    plan = mt.plan(Attention(), sentences(), mode="eager", costs="reference", **options)
    line, = said()
    assert line.startswith("plan for a budget of " if options else "plan for the least memory: ")
    assert "%+.1f %% time" % (100 * plan.overhead) in line and line.endswith(" s")


def test_estimates_are_none_and_sweeps_a_line_each(said):
    module, x = Convolutions(), images()
    mt.estimate(module, x)
    mt.estimate(module, x, "eager")
    assert not said()
    assert len(mt.sweep(module, x, ("90%", "80%"), "eager", time_limit=2)) == len(said()) == 2


def test_the_first_call_of_a_compiled_module_is_a_line(said):
    module, x = Convolutions(), images()
    plan = mt.plan(module, x, "80%", "eager", time_limit=2)
    for compiled in (mt.compile(module, "80%", "eager"), mt.compile(module, plan=plan)):
        before = len(said())
        assert not said()[before:]
        for _ in range(2):
            compiled(*x).backward()
        assert len(said()) == before + 1
    mt.compile(module, mode="eager")(*x)
    assert len(said()) == before + 1


def test_a_plan_after_a_trial_says_why(said, monkeypatch):
    takes = iter([1 << 30])
    tried = inductor.trial_bytes
    monkeypatch.setattr(inductor, "trial_bytes",
                        lambda *given: next(takes, None) or tried(*given))
    module = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU())
                                   for _ in range(6)])
    x = torch.randn(256, 64)
    whole = mt.estimate(module, x, "inductor")
    takes = iter([whole.pool_bytes])
    mt.compile(module, int(0.85 * whole.total_bytes))(x).sum().backward()
    first, second = said()
    assert first.startswith("plan for a budget") and second.startswith("planned again, as the code")
