"""``mode="eager"``: exact bytes, and the numbers of the module without a plan."""
from __future__ import annotations

import copy

import pytest
import torch
from torch_nets import Attention, Convolutions, Counter, images, same, sentences, trained

import memonger.torch as mt
from memonger.errors import InfeasibleBudget, InputError, PlanMismatch
from memonger.torch.rewrite import eager
from memonger.torch.step.network import PLANNED_AGAIN

CASES = [(Convolutions, images, "80%"), (Attention, sentences, "85%")]


@pytest.fixture
def counter(monkeypatch):
    """Counts what the ATen operators of a step make, once ``counter.on`` is set."""
    found, run = Counter(), eager.Program.run

    def counted(program, args):
        if not getattr(found, "on", False):
            return run(program, args)
        with found:
            return run(program, args)
    monkeypatch.setattr(eager.Program, "run", counted)
    return found


@pytest.mark.parametrize("net,inputs,budget", CASES)
@pytest.mark.parametrize("planned", [False, True])
def test_the_predicted_peak_is_what_a_dispatch_mode_counts(net, inputs, budget, planned, counter):
    module, x = net(), inputs()
    step = mt.compile(module, budget if planned else None, "eager", costs="cpu")
    step(*x).backward()
    module.zero_grad()
    counter.on = True
    loss = step(*x)
    loss.backward()
    [plan] = mt.plans(step)
    assert counter.peak == plan.pool_bytes
    assert (plan.pool_bytes < plan.baseline_pool_bytes) == planned


@pytest.mark.parametrize("net,inputs,budget", CASES)
def test_training_is_that_of_the_unplanned_module(net, inputs, budget):
    module, x = net(), inputs()
    twin, third = copy.deepcopy(module), copy.deepcopy(module)
    planned = mt.compile(module, budget, "eager")
    numbers = trained(planned, module, x)
    assert mt.plans(planned)[0].schedule.recomputed()
    assert same(numbers, trained(mt.compile(twin, mode="eager"), twin, x))
    assert same(numbers, trained(third, third, x))


def test_a_budget_that_no_plan_meets_names_the_smallest_total():
    module, x = Convolutions(), images()
    with pytest.raises(InfeasibleBudget, match="the smallest total found is") as refused:
        mt.compile(module, "5%", "eager")(*x)
    least = mt.plan(module, x, refused.value.minimum_bytes, "eager")
    assert least.total_bytes == refused.value.minimum_bytes
    with pytest.raises(InfeasibleBudget):
        mt.plan(module, x, "5%", "eager")


def test_a_saved_plan_runs_and_is_checked_against_the_graph(tmp_path):
    from memonger import load_plan
    module, x = Convolutions(), images()
    plan = mt.plan(module, x, "65%", "eager")
    path = tmp_path / "plan.json"
    plan.save(str(path))
    loaded = load_plan(str(path))
    assert loaded == plan
    twin = copy.deepcopy(module)
    step = mt.compile(module, plan=loaded)
    with pytest.warns(UserWarning, match="which no plan keeps"):  # with what convolutions allocate
        numbers = trained(step, module, x)
    assert same(numbers, trained(twin, twin, x))
    assert mt.plans(step)[0].schedule == plan.schedule
    with pytest.raises(PlanMismatch, match="plan again"):
        mt.compile(Convolutions(width=4), plan=loaded)(*x)
    with pytest.raises(InputError, match="not 'inductor'"):
        mt.compile(module, plan=loaded, mode="inductor")


def test_a_plan_without_what_operators_allocate_keeps_its_budget_with_it(tmp_path):
    """It is planned again when it first runs: planning itself ran nothing."""
    module = Mixer()
    x = torch.randn(16, 3, 32, 32)
    kept = next(name for name, decision in mt.plan(module, (x,), "65%", "eager").decisions.items()
                if decision == "recompute")
    plan = mt.plan(module, (x,), "65%", "eager", keep=[kept])
    assert any("without a profile" in note for note in plan.notes)
    step = mt.compile(module, plan=plan)
    taken_bytes = mt.measure(step, (x,), 1).total_bytes
    [counted] = mt.plans(step)
    assert taken_bytes <= counted.total_bytes <= counted.budget_bytes == plan.budget_bytes
    assert counted.schedule != plan.schedule and PLANNED_AGAIN in counted.notes
    assert counted.decisions[kept] == "keep"


def test_planning_runs_nothing_and_takes_inputs_on_meta():
    module, x = Convolutions(), images()
    buffers = [b.clone() for b in module.buffers()]
    plan = mt.plan(module, tuple(t.to("meta") for t in x), "65%", "eager")
    assert same(buffers, list(module.buffers()))
    assert plan == mt.plan(module, dict(zip(("x", "target"), x)), "65%", "eager")
    assert plan.total_bytes <= plan.budget_bytes < plan.baseline_total_bytes
    assert mt.estimate(module, x, "eager").total_bytes == plan.baseline_total_bytes


def test_with_a_profile_the_peak_is_what_the_allocator_hands_out():
    """Convolutions allocate while they run; a profile knows how much."""
    module, x = Convolutions(), images()
    assert "not counted without a profile" in str(mt.plan(module, x, "75%", mode="eager"))
    costs = mt.profile(module, x, mode="eager")
    plan = mt.plan(module, x, "75%", mode="eager", costs=costs)
    measured = mt.measure(mt.compile(module, plan=plan, costs=costs), x, steps=1)
    assert 0 <= plan.total_bytes - measured.total_bytes < 1024
    assert measured.total_bytes <= plan.budget_bytes
    assert "not counted without a profile" not in str(plan)
    assert "not counted without a profile" in str(mt.plan(module, x, "90%"))  # under Inductor, too


class Mixer(torch.nn.Module):
    """Patches, and layers with dropout: its kernel allocates, as that of patches does."""

    def __init__(self, width=64):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, width, 4, 4)
        self.layers = torch.nn.ModuleList(torch.nn.Sequential(
            torch.nn.LayerNorm(width), torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
            torch.nn.Dropout(0.1), torch.nn.Linear(4 * width, width)) for _ in range(4))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = x + layer(x)
        return x.mean(1)


class Transposed(torch.nn.Module):
    """BatchNorm over transposed values, whose kernel lays its result otherwise than its fake one.
    """

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(32, 32) for _ in range(4)])
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm1d(32) for _ in range(4)])

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = norm(torch.relu(layer(x)).transpose(1, 2)).transpose(1, 2)
        return x.square().mean()


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_kernel_with_another_layout_than_was_traced_trains_in_its_budget(dynamic):
    torch.manual_seed(0)
    module, x = Transposed(), torch.randn(16, 64, 32)
    twin = copy.deepcopy(module)
    planned = mt.compile(module, "85%", "eager", dynamic=dynamic)
    for found, wanted in zip(trained(planned, module, (x,)), trained(twin, twin, (x,))):
        assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-6)
    plan = mt.plans(planned)[0]
    assert plan.schedule.recomputed()
    assert mt.measure(planned, (x,), 1).total_bytes <= plan.total_bytes <= plan.budget_bytes


class ChannelNorms(torch.nn.Module):
    """LayerNorm over the channels of pictures, whose gradient's kernel lays it otherwise than its
    fake one; convolutions add up gradients of biases as these lie in memory.
    """

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Conv2d(64, 64, 1) for _ in range(4)])
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(64) for _ in range(4)])

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = x + norm(layer(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x.square().mean()


def test_gradients_are_added_up_as_the_module_adds_them():
    torch.manual_seed(0)
    module, x = ChannelNorms(), torch.randn(8, 64, 4, 4)
    twin = copy.deepcopy(module)
    planned = mt.compile(module, "85%", "eager")
    assert same(trained(planned, module, (x,)), trained(twin, twin, (x,)))
    assert mt.plans(planned)[0].schedule.recomputed()
