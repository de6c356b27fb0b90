"""Eager mode keeps its budget by itself where operators allocate while they run."""
from __future__ import annotations

import pytest
import torch
import torch.nn as nn

import memonger.torch as mt
from memonger.torch.capture.costs import signature
from memonger.torch.times import profile, stored_profiles


class ConvNext(nn.Module):
    """Depthwise convolution, LayerNorm over channels that come last, GELU."""

    def __init__(self, width=24):
        super().__init__()
        self.depth = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        h = self.norm(self.depth(x).permute(0, 2, 3, 1))
        return x + self.narrow(nn.functional.gelu(self.wide(h))).permute(0, 3, 1, 2)


class Residual(nn.Module):
    def __init__(self, width=16, groups=1):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, groups=groups), nn.BatchNorm2d(width),
            nn.ReLU(inplace=True), nn.Conv2d(width, width, 1), nn.BatchNorm2d(width))

    def forward(self, x):
        return torch.relu(x + self.body(x))


def net(kind):
    torch.manual_seed(0)
    picture = torch.randn(4, 3, 24, 24)
    if kind == "convnext":
        return nn.Sequential(nn.Conv2d(3, 24, 2, 2), *[ConvNext() for _ in range(3)]), picture
    if kind == "resnet":
        return nn.Sequential(nn.Conv2d(3, 16, 3), *[Residual() for _ in range(3)]), picture
    if kind == "grouped":
        return nn.Sequential(nn.Conv2d(3, 16, 3), *[Residual(groups=4) for _ in range(2)]), picture
    if kind == "transposed":
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.GELU(), nn.Conv2d(16, 32, 3, 2, 1), nn.GELU(),
            nn.ConvTranspose2d(32, 16, 2, 2), nn.GELU(), nn.ConvTranspose2d(16, 8, 2, 2)), picture
    return nn.Sequential(*[layer for width in (3, 8, 8) for layer in (
        nn.Conv3d(width, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU())]), \
        torch.randn(2, 3, 8, 12, 12)


@pytest.mark.parametrize("kind", ["convnext", "resnet", "grouped", "transposed", "conv3d"])
def test_the_allocator_stays_within_the_budget(kind):
    module, x = net(kind)
    planned = mt.compile(module, "85%", "eager")
    measured = mt.measure(planned, (x,), steps=1)
    [plan] = mt.plans(planned)
    assert measured.total_bytes <= plan.budget_bytes
    assert plan.total_bytes <= 1.15 * measured.total_bytes  # the sum has a gradient of one number
    assert not any("not counted" in note for note in plan.notes)
    assert any(tensor.name.endswith(":temporary") for tensor in plan.graph.tensors)


def test_no_op_is_measured_twice_and_nothing_else_changes(monkeypatch):
    module, x = net("resnet")
    measured, alone = [], profile._alone

    def noted(joint, node, inputs, repeats, copies):
        measured.append(signature(node, copies))
        return alone(joint, node, inputs, repeats, copies)
    monkeypatch.setattr(profile, "_alone", noted)
    before, random = [p.clone() for p in module.parameters()], torch.get_rng_state()
    planned = mt.compile(module, "85%", "eager")
    planned(x)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters()))
    count = len(measured)
    assert count == len(set(measured)) > 5
    planned(x)
    mt.compile(module, "85%", "eager")(x)
    assert len(measured) == count
    planned(x[:3])
    assert len(measured) == len(set(measured)) > count


def test_where_nothing_can_be_stored_it_is_measured_all_the_same(monkeypatch):
    def refused(*_):
        raise PermissionError("read-only")
    monkeypatch.setattr(stored_profiles, "write_whole", refused)
    module, x = net("resnet")
    planned = mt.compile(module, "85%", "eager")
    assert mt.measure(planned, (x,), steps=1).total_bytes <= mt.plans(planned)[0].budget_bytes


def test_measuring_takes_no_more_than_the_step():
    from memonger.torch.calls.tracing import traced
    from memonger.torch.pytorch.allocations import peak_bytes
    from memonger.torch.step.request import Request
    module, x = net("resnet")
    joint = traced(module, (x,), Request(mode="eager", unplanned=True)).captured.joint
    found = {}
    taken = []
    nodes = {signature(n): n for n in joint.graph.nodes if profile.runs_alone(n)}
    for key, node in nodes.items():
        taken.append(peak_bytes(lambda node=node: profile._alone(joint, node, (), 1, False),
                                torch.device("cpu")))
        found[key] = taken[-1]
    plan = mt.plan(module, (x,), "100%", "eager", costs=mt.profile(module, (x,), "eager"))
    assert max(taken) < 0.7 * plan.pool_bytes
