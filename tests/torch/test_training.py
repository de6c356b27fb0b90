"""Everything that training does with a module, planned: same numbers, bit for bit."""
from __future__ import annotations

import copy

import pytest
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from torch_nets import Attention, Convolutions, images, same, sentences, trained

import memonger.torch as mt
from memonger.errors import InfeasibleBudget, InputError
from memonger.torch.pytorch.allocations import peak_bytes
from memonger.torch.pytorch.module_step import bytes_before


def chain(layers=6, width=32):
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())
                           for _ in range(layers)])


def rows(batch=64, width=32):
    torch.manual_seed(1)
    return (torch.randn(batch, width),)


def summed(output):
    return output.square().mean()


def check(module, inputs, budget="70%", loss=None, **options):
    """Planned in eager mode, it recomputes something and trains as it is."""
    twin = copy.deepcopy(module)
    planned = mt.compile(module, budget, "eager", **options)
    numbers = trained(planned, module, inputs, loss=loss)
    plan = mt.plans(planned)[0]
    assert plan.schedule.recomputed() and plan.total_bytes <= plan.budget_bytes
    assert same(numbers, trained(twin, twin, inputs, loss=loss))
    return planned


def test_a_loss_outside_the_module():
    check(chain(), rows(), loss=summed)


def test_named_inputs_and_several_outputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = chain(4), chain(4)

        def forward(self, a, b, scale=2.0):
            x, y = self.left(a), self.right(b * scale)
            return {"sum": x + y, "parts": (x, y[:3])}
    check(Two(), {"a": rows()[0], "b": rows()[0]}, "75%",
          loss=lambda out: summed(out["sum"]) + out["parts"][1].sum())


def test_views_and_writing_in_place():
    class Views(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = chain(3), chain(3)

        def forward(self, x):
            h = self.first(x)
            left, right = h.view(-1, 2, 16).transpose(0, 1).unbind(0)
            h = h * 2
            h[:, :16] += left.sigmoid()
            h[:, 16:].mul_(right)
            return self.second(h.relu_())
    check(Views(), rows(), "75%", loss=summed)


def test_checkpoint_regions_are_part_of_the_plan():
    class Regions(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([nn.Sequential(chain(2), nn.Dropout(0.3))
                                        for _ in range(3)])

        def forward(self, x):
            for part in self.parts:
                x = checkpoint(part, x, use_reentrant=False)
            return x
    module = Regions()
    planned = mt.compile(module, "85%", "eager")
    twin = copy.deepcopy(module)
    assert same(trained(planned, module, rows(), loss=summed),
                trained(mt.compile(twin, mode="eager"), twin, rows(), loss=summed))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        [x] = ctx.saved_tensors
        return 3 * gradient * x  # not the derivative, so that it is seen to be used


def test_custom_autograd_functions_keep_their_backward():
    class Custom(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = chain(4), chain(4)

        def forward(self, x):
            return self.second(Doubled.apply(self.first(x)))
    check(Custom(), rows(), loss=summed)


def test_autocast_to_bfloat16():
    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = chain()

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.body(x).float()
    check(Cast(), rows(256), loss=summed)


def test_gradients_accumulate_and_a_module_may_run_twice_in_a_step():
    module, (x,) = chain(), rows(256)
    twin = copy.deepcopy(module)
    planned = mt.compile(module, "70%", "eager")
    for call in (planned, twin):
        (summed(call(x)) + summed(call(x.flip(0)))).backward()
        summed(call(x * 2)).backward()
    assert same([p.grad for p in module.parameters()], [p.grad for p in twin.parameters()])
    assert len(mt.plans(planned)) == 1


class Squared(nn.Module):
    def forward(self, x):
        return x.square().mean()


@pytest.mark.parametrize("budget", [None, "85%"])
def test_gradients_that_exist_are_part_of_the_total(budget):
    module, (x,) = nn.Sequential(chain(width=64), Squared()), rows(256, 64)
    held_bytes = sum(p.nbytes for p in module.parameters())
    step = mt.compile(module, budget, "eager", costs="cpu")

    def train():
        step(x).backward()
    train()
    fresh = mt.plans(step)[-1]
    torch._dynamo.reset()  # it is compiled again, beside gradients
    train()
    plan = mt.plans(step)[-1]
    assert "gradients" not in fresh.fixed_bytes and plan.fixed_bytes["gradients"] == held_bytes
    assert mt.estimate(module, (x,), "eager").fixed_bytes["gradients"] == held_bytes
    assert ("that this one adds to" in str(fresh)) and "that this one adds to" not in str(plan)
    taken = peak_bytes(train, x.device) + bytes_before(module, (x,)) + held_bytes
    assert abs(plan.total_bytes - taken) <= 16  # a few numbers


def test_two_networks_of_one_step():
    def step(maker, judge, made_by, judged_by):
        torch.manual_seed(2)
        found = []
        for _ in range(2):
            fake = made_by(torch.randn(256, 32))
            found.append(judged_by(fake.detach()).mean())
            found[-1].backward()
            found.append((judged_by(fake) - 1).square().mean())
            found[-1].backward()
            found += [p.grad.clone() for net in (maker, judge) for p in net.parameters()]
        return found
    nets = chain(), chain()
    twins = copy.deepcopy(nets)
    planned = [mt.compile(net, "75%", "eager") for net in nets]
    assert same(step(*nets, *planned), step(*twins, *twins))


def test_without_gradients_and_in_evaluation():
    module, x = Convolutions(), images()
    planned = mt.compile(module, "70%", "eager")
    planned(*x).backward()
    module.zero_grad()
    planned.eval()
    buffers = [b.clone() for b in module.buffers()]
    with torch.no_grad():
        assert torch.equal(planned(*x), module(*x))
    planned(*x).backward()
    assert same(buffers, list(module.buffers()))
    assert all(p.grad is not None for p in module.parameters())


def test_an_exception_leaves_the_module_usable():
    module, (x,) = chain(), rows()
    planned = mt.compile(module, "70%", "eager")
    with pytest.raises(Exception, match="reduction dim"):
        planned(torch.randn(4, 7))
    output = planned(x)

    def stop(gradient):
        raise KeyError("stop")
    output.register_hook(stop)
    with pytest.raises(KeyError):
        output.sum().backward()
    twin = copy.deepcopy(module)
    twin.zero_grad()
    module.zero_grad()
    assert same(trained(planned, module, (x,), loss=summed),
                trained(twin, twin, (x,), loss=summed))


def test_graph_breaks_are_refused_in_one_line_where_one_graph_is_asked_for():
    class Breaks(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = chain(2)

        def forward(self, x):
            x = self.body(x)
            torch._dynamo.graph_break()
            return self.body(x)
    with pytest.raises(InputError, match="as one graph") as refused:
        mt.compile(Breaks(), "70%", strict=True)(*rows())
    assert "\n" not in str(refused.value)
    assert mt.plan(Breaks(), rows(), "70%").total_bytes > 0


def test_dynamic_shapes_run_by_one_plan_as_far_as_that_keeps_the_budget():
    module = chain()
    twin = copy.deepcopy(module)
    planned = mt.compile(module, "75%", "eager")
    for batch, plans in ((96, 1), (64, 1), (97, 1), (128, 2), (64, 2)):
        x = rows(batch)
        if batch <= 128:
            torch._dynamo.mark_dynamic(x[0], 0, min=64, max=128)
        numbers = trained(planned, module, x, 1, summed)
        assert same(numbers, trained(twin, twin, rows(batch), 1, summed))
        assert len(mt.plans(planned)) == plans
    assert all(plan.schedule.recomputed() for plan in mt.plans(planned))


def test_a_shape_that_changes_is_planned_again():
    module = Attention()
    planned = mt.compile(module, "90%", "eager")
    for length in (12, 20, 24):
        planned(*sentences(length=length)).backward()
    assert len(mt.plans(planned)) >= 2


def test_nothing_to_train_is_said():
    module, x = chain(), rows()
    with torch.no_grad(), pytest.raises(InputError, match="no gradient is taken"):
        mt.plan(module, x, "70%", "eager")
    with pytest.raises(InputError, match="inputs must be"):
        mt.plan(module, 3, "70%", "eager")
    with pytest.raises(InputError, match="mode must be"):
        mt.plan(module, x, "70%", "fast")
    with pytest.raises(InfeasibleBudget):
        mt.plan(module, x, "1%", "eager")
    with pytest.raises(InputError, match="what memonger.torch.compile gave"):
        mt.plans(module)
