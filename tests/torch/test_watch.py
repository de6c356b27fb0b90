"""What is in memory beside a step is part of the budget, or a warning says that it exceeds it."""
from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.nn as nn
from torch_nets import same

import memonger.torch as mt
from memonger.torch.pytorch.allocations import peak_bytes
from memonger.torch.pytorch.module_step import bytes_before

LAYERS, WIDTH = 6, 64


class Deep(nn.Module):
    """Its parameters take about as much as its activations."""

    def __init__(self, breaks=False):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Tanh())
                                    for _ in range(LAYERS))
        self.breaks = breaks

    def forward(self, x):
        for place, layer in enumerate(self.layers):
            x = layer(x)
            if self.breaks and place == LAYERS // 2:
                torch._dynamo.graph_break()
        return x.square().mean()


def rows():
    torch.manual_seed(1)
    return torch.randn(64, WIDTH)


def gradient_bytes_of(module):
    return sum(p.nbytes for p in module.parameters())


def dropped_before(call, module, x):
    module.zero_grad()
    call(x).backward()


def dropped_between(call, module, x):
    loss = call(x)
    module.zero_grad()
    loss.backward()


def accumulated(call, module, x):
    call(x).backward()


@pytest.mark.parametrize("loop", [dropped_between, accumulated])
@pytest.mark.parametrize("breaks", [False, True])
def test_a_warning_says_once_what_a_step_takes_with_them(loop, breaks):
    module, x = Deep(breaks), rows()
    planned = mt.compile(module, "85%", "eager")
    loop(planned, module, x)
    with pytest.warns(UserWarning, match="while forward runs.*above the budget of.*in_flight=1"):
        loop(planned, module, x)
    for _ in range(2):
        loop(planned, module, x)


def test_only_the_beginning_of_backward_tells_of_accumulation():
    """The plan's peak is in backward: forward has room for them beside it."""
    module, x = Deep(), rows()
    twin = copy.deepcopy(module)
    least = mt.plan(module, (x,), None, "eager")
    planned = mt.compile(module, plan=least.changed(
        budget_bytes=least.total_bytes + gradient_bytes_of(module) - 1))
    for _ in range(2):
        dropped_between(planned, module, x)
    with pytest.warns(UserWarning, match="while backward runs.*To accumulate gradients give"):
        accumulated(planned, module, x)
    for _ in range(2):
        accumulated(twin, twin, x)
    assert same([p.grad for p in module.parameters()], [p.grad for p in twin.parameters()])


@pytest.mark.parametrize("loop,share", [(dropped_before, "70%"), (dropped_between, "150%"),
                                        (accumulated, "150%")])
def test_nothing_is_said_where_the_budget_has_room(loop, share):
    module, x = Deep(), rows()
    planned = mt.compile(module, share, "eager")
    for _ in range(3):
        loop(planned, module, x)


@pytest.mark.parametrize("mode", ["eager", "inductor"])
@pytest.mark.parametrize("breaks", [False, True])
def test_plans_that_count_them_keep_the_budget(mode, breaks):
    module, x = Deep(breaks), rows()
    planned = mt.compile(module, "80%" if mode == "eager" else "90%", mode, in_flight=1)

    def step():
        accumulated(planned, module, x)
    with warnings.catch_warnings(record=True) as said:
        step()
        step()
    assert not [w for w in said if "earlier calls" in str(w.message)]
    [plan] = mt.plans(planned)
    held_bytes = gradient_bytes_of(module)
    assert plan.fixed_bytes["gradients"] == held_bytes
    taken_bytes = bytes_before(module, x) + held_bytes + peak_bytes(step, torch.device("cpu"))
    assert taken_bytes <= plan.total_bytes <= plan.budget_bytes and plan.schedule.recomputed()


def of_two(call, x, rows=64):
    return call(x[:rows]) + call(x[rows:])


def test_a_loss_of_two_calls_is_said_to_exceed_the_budget():
    module = Deep()
    x = torch.cat([rows(), rows()])
    planned = mt.compile(module, "85%", "eager")
    with pytest.warns(UserWarning, match="2 calls of the module wait .* the plan counts 1: "
                                         ".*in_flight=2"):
        of_two(planned, x).backward()
    module.zero_grad()
    of_two(planned, x).backward()  # it is said once


def test_calls_that_wait_are_part_of_the_budget_where_they_are_counted():
    module = Deep()
    x = torch.cat([rows(), rows()])
    planned = mt.compile(module, "85%", "eager", in_flight=2)
    of_two(planned, x).backward()

    def step():
        of_two(planned, x).backward()
    module.zero_grad()
    taken_bytes = bytes_before(module, x) + peak_bytes(step, torch.device("cpu"))
    [plan] = mt.plans(planned)
    assert taken_bytes <= plan.total_bytes <= plan.budget_bytes and plan.schedule.recomputed()


@pytest.mark.parametrize("mode", ["eager", "inductor"])
def test_calls_that_are_over_do_not_wait(mode):
    """Backward was called, or the result is gone, or no gradient was to be taken."""
    module, x = Deep(), rows()
    planned = mt.compile(module, "100%", mode)
    for _ in range(2):
        loss = planned(x)
        loss.backward()
        module.zero_grad()
        planned(x)
        with torch.no_grad():
            kept = planned(x)
    assert kept.shape == ()
    assert loss.grad_fn is not None  # its graph is there, empty


class Stops(nn.Module):
    """Its second call raises."""

    def __init__(self):
        super().__init__()
        self.inner, self.calls = nn.Linear(WIDTH, WIDTH), 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 2:
            raise ValueError("the second call")
        return self.inner(x).square().mean()


def test_calls_that_train_leave_gradients_as_they_were():
    """Those that exist when a plan is made count in it."""
    module, x = Deep(), rows().requires_grad_()
    planned = mt.compile(module, "80%", "eager")

    def gradients():
        return [p.grad for p in module.parameters()] + [x.grad]
    for look in (lambda: mt.measure(planned, x, 1), lambda: mt.verify(planned, module, x),
                 lambda: mt.profile(module, x, "eager"), lambda: mt.estimate(module, x)):
        for there in (False, True):
            module.zero_grad()
            x.grad = None
            if there:
                planned(x).backward()
            before = gradients()
            values = [None if g is None else g.clone() for g in before]
            look()
            assert all(a is b for a, b in zip(gradients(), before))
            assert all(v is None or torch.equal(v, g) for v, g in zip(values, gradients()))
            assert (before[0] is not None) == there


def test_a_measurement_that_stops_leaves_gradients_as_they_were():
    module = Stops()
    with pytest.raises(ValueError, match="second"):
        mt.measure(module, rows(), 1)
    assert all(p.grad is None for p in module.parameters())
