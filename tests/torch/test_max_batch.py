"""The largest batch that fits, by two readings of a module."""
from __future__ import annotations

import importlib

import pytest
import torch
from torch_nets import Attention, Convolutions, images

import memonger.torch as mt
from memonger.planning.max_batch import search_batch
from memonger.torch.calls.tracing import read_once, traced
from memonger.torch.capture.resized import with_other_batch
from memonger.torch.pytorch.module_step import prime_batch, with_batch
from memonger.torch.step.request import Request, requested

calls = importlib.import_module("memonger.torch.calls.max_batch")


class Otherwise(torch.nn.Module):
    """Holds more for each sample from some batch on."""

    def __init__(self, least):
        super().__init__()
        self.least = least
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(4))

    def forward(self, x):
        h = x
        for layer in self.layers:
            h = layer(h)
            h = h.sin() * h.cos()
            if x.shape[0] >= self.least:
                h = h.exp() * h.tanh()
        return h.sum()


def tokens():
    words = torch.zeros(2, 24, dtype=torch.int64)
    return words, words


@pytest.fixture
def read(monkeypatch):
    """Batches that were traced, in order."""
    batches = []

    def counted(call):
        def called(module, inputs, *rest):
            batches.append(len(inputs[0]))
            return call(module, inputs, *rest)
        return called
    for name in ("traced", "read_once"):
        monkeypatch.setattr(calls, name, counted(getattr(calls, name)))
    return batches


def by_reading_all(module, inputs, budget, mode):
    """The answer where each batch is read that is tried."""
    request = requested(Request(budget=budget, mode=mode, time_limit=2), "reference")

    def plan_at(asked, batch):
        return traced(module, with_batch(inputs, batch), asked).plan
    return search_batch(request, 64, lambda batch: plan_at(
        requested(Request(mode=mode, unplanned=True), "reference"), batch).total_bytes, plan_at)


@pytest.mark.parametrize("make, inputs, mode", [
    (Convolutions, images(6), "eager"), (Attention, tokens(), "eager"),
    (Convolutions, images(6), "inductor")])
def test_two_readings_find_what_readings_of_all_batches_do(make, inputs, mode, read):
    module = make()
    whole = mt.estimate(module, with_batch(inputs, 20), mode).total_bytes
    found = mt.max_batch(module, inputs, whole, mode, "reference", time_limit=2, limit=64)
    assert read == [11, found.planned] and found.planned > found.unplanned == 20
    other = by_reading_all(module, inputs, whole, mode)
    assert (found.planned, found.plan.total_bytes, found.plan.overhead) == (
        other.planned, other.plan.total_bytes, other.plan.overhead)
    assert found.plan.total_bytes <= whole


@pytest.mark.parametrize("mode", ["eager", "inductor"])
def test_a_step_with_another_batch_is_the_one_that_is_traced_there(mode):
    module, inputs = Convolutions(), images(6)
    request = requested(Request(mode=mode, unplanned=True), "reference")
    step = read_once(module, with_batch(inputs, 11), request, 11)
    for batch in (4, 13, 40):
        there = traced(module, with_batch(inputs, batch), request).captured
        made = with_other_batch(step.forms[0], 11, batch, mode == "inductor", "reference")
        assert made.graph.fingerprint == there.graph.fingerprint
        assert [op.time_s for op in made.graph.ops] == [op.time_s for op in there.graph.ops]
        assert [op.kept_outputs for op in made.graph.ops] == [
            op.kept_outputs for op in there.graph.ops]
        assert made.outside_bytes == there.outside_bytes


@pytest.mark.parametrize("least, readings", [(2, 2), (21, 10), (100, 2)])
def test_where_other_sizes_are_found_than_were_foretold_more_batches_are_read(
        least, readings, read):
    module, x = Otherwise(least), (torch.empty(4, 32, device="meta"),)
    budget = mt.estimate(module, with_batch(x, 20), "eager").total_bytes
    found = mt.max_batch(module, x, budget, "eager", "reference", time_limit=1, limit=64)
    assert len(read) == readings and read[0] == 11
    other = by_reading_all(module, x, budget, "eager")
    assert (found.unplanned, found.planned) == (other.unplanned, other.planned)
    assert found.plan.total_bytes <= budget


def test_a_batch_to_read_divides_no_other_dimension():
    module = torch.nn.Linear(13 * 4, 17)
    assert prime_batch(module, torch.empty(4, 52), 11) == 11
    assert prime_batch(module, torch.empty(4, 52), 12) == 19
    assert prime_batch(module, torch.empty(13, 52), 12) == 19
    assert prime_batch(lambda x, y: x, (torch.empty(4), torch.empty(22, 4)), 4) == 5
    assert prime_batch(lambda x, y: x, (torch.empty(4), torch.empty(22, 4)), 11) == 13


def test_a_module_of_several_graphs_is_read_with_each_batch(read):
    class Broken(Otherwise):
        def forward(self, x):
            h = super().forward(x.tanh())
            torch._dynamo.graph_break()
            return (h * h).sum()
    module, x = Broken(60), (torch.empty(4, 32),)
    budget = mt.estimate(module, with_batch(x, 8), "eager").total_bytes
    found = mt.max_batch(module, x, budget, "eager", "reference", time_limit=1, limit=16)
    assert len(read) > 4 and found.planned >= found.unplanned == 8
    assert found.plan.total_bytes <= budget


def test_what_is_not_known_at_the_largest_batch_is_said():
    """A batch of 123 was said to fit, and 118 were refused when compiled."""
    module, x = Convolutions(), images()
    profile = mt.profile(module, x, "eager")
    batch = len(x[0])
    known = mt.max_batch(module, x, "1GB", "eager", costs=profile, time_limit=1, limit=batch)
    assert known.planned == batch and not known.notes and "note" not in str(known)
    larger = mt.max_batch(module, x, "1GB", "eager", costs=profile, time_limit=1, limit=3 * batch)
    assert larger.planned == 3 * batch and "may refuse the largest" in str(larger)
    assert larger.to_dict()["notes"] == list(larger.notes) != []
