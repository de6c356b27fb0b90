"""A budget holds at every size: planned again where a plan takes more there, or refused."""
from __future__ import annotations

import copy
import logging

import pytest
import torch
import torch.nn as nn
from torch_nets import Attention, Convolutions, images, same, sentences

import memonger.torch as mt
from memonger.errors import InfeasibleBudget, PlanMismatch, UnitError
from memonger.torch.pytorch.allocations import peak_bytes
from memonger.torch.pytorch.module_step import bytes_before


def layers(count=8, width=64):
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU())
                           for _ in range(count)], nn.Linear(width, 10))


class Step:
    """Steps of a compiled module: what the allocator hands out, and the plain module's numbers."""

    def __init__(self, module, compiled, loss=None):
        self.module, self.compiled, self.loss = module, compiled, loss
        self.twin = copy.deepcopy(module)

    def __call__(self, *inputs):
        """The total of a step with these inputs."""
        self._train(self.compiled, self.module, inputs)
        one = [p.grad for p in self.module.parameters()]
        self._train(self.twin, self.twin, inputs)
        assert all(torch.allclose(a, b.grad, rtol=1e-4, atol=1e-6)
                   for a, b in zip(one, self.twin.parameters()))
        del one
        self.module.zero_grad(set_to_none=True)
        taken = peak_bytes(lambda: self._train(self.compiled, self.module, inputs),
                           torch.device("cpu"))
        self.module.zero_grad(set_to_none=True)
        return taken + bytes_before(self.module, inputs)

    def _train(self, call, module, inputs):
        module.zero_grad(set_to_none=True)
        torch.manual_seed(7)
        output = call(*inputs)
        (output.square().sum() if output.dim() else output).backward()


def trained(module, planned, *inputs):
    """A step, whose gradients are gone when the next one begins."""
    planned(*inputs).sum().backward()
    module.zero_grad(set_to_none=True)


def rows(batch, width=64):
    torch.manual_seed(1)
    return (torch.randn(batch, width),)


@pytest.mark.parametrize("mode", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_batches_of_other_sizes_keep_the_budget_or_are_refused(mode):
    module = layers()
    planned = mt.compile(module, 1_200_000, mode)
    step = Step(module, planned)
    for batch in (256, 200, 256, 48, 320, 300):
        assert step(*rows(batch)) <= 1_200_000
        if batch == 48:
            assert len(mt.plans(planned)) == 2
    buffers = copy.deepcopy(module.state_dict())
    for _ in range(2):
        with pytest.raises(InfeasibleBudget) as refused:
            planned(*rows(2048))
        assert refused.value.minimum_bytes > 1_200_000
    assert all(torch.equal(value, buffers[name]) for name, value in module.state_dict().items())
    assert step(*rows(310)) <= 1_200_000
    assert len(mt.plans(planned)) == 3


@pytest.mark.parametrize("how", ["share", "plan", "dynamic=False"])
def test_the_last_batch_of_a_loader_trains(how):
    module, data = layers(), rows(1300)[0]
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=512)
    plan = mt.plan(module, rows(512), "70%", "eager")
    planned = mt.compile(module, plan=plan) if how == "plan" else \
        mt.compile(module, "70%", "eager", dynamic=False if how == "dynamic=False" else None)
    step = Step(module, planned)
    for _ in range(2):
        for batch, in loader:
            assert step(batch) <= plan.budget_bytes
    assert len(mt.plans(planned)) == 2
    assert all(p.budget_bytes == plan.budget_bytes for p in mt.plans(planned))


def test_a_share_is_of_the_first_step():
    module = layers()
    planned = mt.compile(module, "60%", "eager")
    trained(module, planned, *rows(256))
    trained(module, planned, *rows(320))
    first, second = mt.plans(planned)
    assert first.budget_bytes == second.budget_bytes == int(0.6 * first.baseline_total_bytes)
    assert second.total_bytes <= second.budget_bytes


@pytest.mark.parametrize("mode", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_lengths_of_sentences_take_few_plans(mode):
    module = Attention(dropout=0.0)
    budget = int(0.85 * mt.estimate(module, sentences(length=60), mode).total_bytes)
    planned = mt.compile(module, budget, mode)
    step = Step(module, planned)
    for length in (24, 48, 60, 33, 62, 57):
        assert step(*sentences(length=length)) <= budget
    with pytest.raises(InfeasibleBudget):
        planned(*sentences(length=400))
    assert len(mt.plans(planned)) <= 4


def test_a_symbolic_step_takes_what_its_plan_says():
    """Also with operators that run again more than once."""
    module = Attention(dropout=0.1)
    budget = int(0.8 * mt.estimate(module, sentences(length=24), "eager").total_bytes)
    planned = mt.compile(module, budget, "eager", dynamic=True)
    for length in (24, 23):
        taken = mt.measure(planned, sentences(length=length), steps=1).total_bytes
        [plan] = mt.plans(planned)
        assert plan.schedule.recomputed() and taken <= budget
        assert length < 24 or taken <= plan.total_bytes <= 1.01 * taken


def test_more_sizes_and_more_modules_of_a_class_than_pytorch_compiles_by_itself():
    module = layers(1)
    planned = mt.compile(module, "100%", "eager", dynamic=False)
    for batch in range(20, 8, -1):
        trained(module, planned, *rows(batch))
    assert len(mt.plans(planned)) == 12
    blocks = [mt.compile(block, "100%", "eager") for block in layers(11)[:-1]]
    x = rows(4)[0]
    for block in blocks:
        x = block(x)
    x.sum().backward()


def test_a_plan_of_another_network_is_refused_at_any_size():
    plan = mt.plan(layers(), rows(256), "70%", "eager")
    for other, batch in ((layers(9), 256), (layers(width=32), 128)):
        with pytest.raises(PlanMismatch):
            mt.compile(other, plan=plan)(*rows(batch, other[0][0].in_features))


def test_a_plan_is_followed_at_other_sizes_and_planned_again_above_its_budget():
    module = layers()
    plan = mt.plan(module, rows(256), "70%", "eager")
    planned = mt.compile(module, plan=plan)
    for batch in (256, 100, 280):
        trained(module, planned, *rows(batch))
    first, smaller, larger = mt.plans(planned)
    assert first == plan
    assert smaller.schedule.recomputed() == plan.schedule.recomputed()
    assert max(smaller.total_bytes, larger.total_bytes) <= plan.budget_bytes
    with pytest.raises(InfeasibleBudget):
        planned(*rows(4096))


def test_a_wrong_budget_is_said_by_the_call():
    for budget in ("8 gigs", "abc%", -1):
        with pytest.raises(UnitError):
            mt.compile(layers(), budget)


@pytest.mark.parametrize("mode", ["eager", "inductor"])
def test_calls_without_gradients_are_checked_too(mode):
    module = layers(2)
    planned = mt.compile(module, 200_000, mode)
    with torch.no_grad():
        assert torch.allclose(planned(*rows(200)), module(*rows(200)), rtol=1e-4, atol=1e-6)
        for batch in (1000, 1200):
            with pytest.raises(InfeasibleBudget, match="no gradient is taken") as refused:
                planned(*rows(batch))
        assert refused.value.minimum_bytes > 200_000
        planned(*rows(100))


def test_gradients_inside_a_function_are_counted():
    def step(weight, x):
        return torch.func.grad(lambda w: (x @ w).relu().square().sum())(weight)
    arguments = torch.randn(64, 64), torch.randn(512, 64)
    with pytest.raises(InfeasibleBudget) as refused:
        mt.compile(step, "200KB", "eager")(*arguments)
    least = refused.value.minimum_bytes
    assert torch.equal(mt.compile(step, least, "eager")(*arguments), step(*arguments))
    with pytest.warns(UserWarning, match="nothing was planned"):
        mt.compile(step, "50%", "eager")(*arguments)


def test_plans_and_new_ones_are_logged(caplog):
    module = layers()
    with caplog.at_level(logging.INFO, "memonger.torch"):
        planned = mt.compile(module, 1_200_000, "eager", dynamic=True)
        for batch in (256, 320):
            trained(module, planned, *rows(batch))
    said = [r.getMessage() for r in caplog.records if r.name == "memonger.torch"]
    assert [line.split()[0] for line in said] == ["plan", "new", "plan"]
    assert "1.14 MiB" in said[0] and "(320)" in said[1]


def test_numbers_of_each_size_are_the_modules_bit_for_bit():
    module = Convolutions(dropout=0.0)
    twin = copy.deepcopy(module)
    planned = mt.compile(module, "90%", "eager")
    for batch in (16, 9, 16, 17):
        found = []
        for call, net in ((planned, module), (twin, twin)):
            net.zero_grad()
            call(*images(batch)).backward()
            found.append([*(p.grad for p in net.parameters()), *net.buffers()])
        assert same(*found)


def test_a_plan_for_the_largest_inputs_serves_all():
    module = layers()
    planned = mt.compile(module, 1_200_000, "eager",
                         max_inputs=(torch.empty(300, 64, device="meta"),))
    step = Step(module, planned)
    for batch in (20, 300, 100):
        assert step(*rows(batch)) <= 1_200_000
    assert len(mt.plans(planned)) == 1
    with pytest.raises(InfeasibleBudget):
        mt.compile(module, 1_200_000, "eager", max_inputs=rows(3000))(*rows(20))
