"""What optimizers hold and what their steps take, beside a real process."""
from __future__ import annotations

import copy
from collections import defaultdict

import pytest
import torch
from torch.optim import optimizer as optimizers

import memonger.torch as mt
from memonger.torch.pytorch.allocations import peak_bytes
from memonger.torch.pytorch.optimizer import optimizer_named
from memonger.util.errors import InfeasibleBudget, InputError


class WithLoss(torch.nn.Module):
    """Linear layers and a loss, of a few rows: the optimizer's step is the worst moment."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(96, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64),
            torch.nn.ReLU(), torch.nn.Linear(64, 64))

    def forward(self, x):
        return self.layers(x).square().mean()


class OfUser(torch.optim.Adam):
    """A subclass with fields and a constructor of its own."""

    def __init__(self, parameters, warm, shift):
        super().__init__(parameters, lr=warm)
        self.shift, self.shadows = shift, [p.detach().clone() for g in self.param_groups
                                           for p in g["params"]]

    def step(self, closure=None):
        super().step()
        for shadow, parameter in zip(self.shadows, self.param_groups[0]["params"]):
            shadow.lerp_(parameter.detach(), self.shift)


class Greedy(torch.optim.SGD):
    """Looks at the numbers to decide what it does."""

    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            if (parameter.grad.abs().max() > 0).item():
                self.state[parameter]["seen"] = parameter.grad.clone()
        super().step()


def groups(net, **options):
    """Weights with options, biases without."""
    return [{"params": [p for p in net.parameters() if p.dim() == 2], **options},
            {"params": [p for p in net.parameters() if p.dim() != 2]}]


MADE = {
    "sgd": lambda net: torch.optim.SGD(net.parameters(), momentum=0.9),
    "sgd of a group": lambda net: torch.optim.SGD(groups(net, momentum=0.9)),
    "adam": lambda net: torch.optim.Adam(net.parameters()),
    "adam foreach": lambda net: torch.optim.Adam(net.parameters(), foreach=True),
    "adam fused": lambda net: torch.optim.Adam(net.parameters(), fused=True),
    "adam of half": lambda net: torch.optim.Adam(net.layers[0].parameters()),
    "adamw of two": lambda net: torch.optim.AdamW(groups(net, amsgrad=True)),
    "adamw foreach": lambda net: torch.optim.AdamW(groups(net, amsgrad=True), foreach=True),
    "adagrad": lambda net: torch.optim.Adagrad(net.parameters()),
    "adafactor": lambda net: torch.optim.Adafactor(net.parameters()),
    "adafactor foreach": lambda net: torch.optim.Adafactor(net.parameters(), foreach=True),
    "radam": lambda net: torch.optim.RAdam(net.parameters()),
    "subclass": lambda net: OfUser(net.parameters(), 1e-3, 0.1),
    "looks": lambda net: Greedy(net.parameters()),
}


def held_by(optimizer):
    """Bytes of an optimizer's own tensors, each storage once."""
    found = {}
    parameters = {id(p) for group in optimizer.param_groups for p in group["params"]}
    todo = [list(optimizer.state.values()), getattr(optimizer, "shadows", ())]
    while todo:
        value = todo.pop()
        if isinstance(value, torch.Tensor) and id(value) not in parameters:
            found[value.data_ptr()] = value.untyped_storage().nbytes()
        elif isinstance(value, (list, tuple, dict)):
            todo += value.values() if isinstance(value, dict) else value
    return sum(found.values())


@pytest.mark.parametrize("kind", MADE)
def test_totals_are_those_of_a_process(kind):
    net, x = WithLoss(), torch.randn(8, 96)
    optimizer = MADE[kind](net)
    plan = mt.plan(net, (x,), "100%", "eager", optimizer=optimizer)
    compiled = mt.compile(net, mode="eager")

    def step():
        loss = compiled(x)
        loss.backward()
        optimizer.step()
        return loss
    for _ in range(6):
        step()
        optimizer.zero_grad()
    peak_bytes(step, torch.device("cpu"))  # it knows the sizes of blocks that it saw allocated
    net.zero_grad()
    before = sum(p.nbytes for p in net.parameters()) + x.nbytes
    measured = peak_bytes(step, torch.device("cpu")) + before + held_by(optimizer)
    assert plan.fixed_bytes["optimizer"] == held_by(optimizer)
    assert plan.total_bytes == pytest.approx(measured, rel=0.01)
    net.zero_grad()  # gradients that are there would count, too
    # An optimizer that has taken steps is counted alike, and so is the module on "meta".
    again = mt.estimate(net, (x,), "eager", optimizer)
    assert again.total_bytes == plan.total_bytes
    if kind == "adam":
        on_meta = copy.deepcopy(net).to("meta")
        assert mt.estimate(on_meta, (x,), "eager", MADE[kind](on_meta)).total_bytes == \
            mt.estimate(on_meta, (x,), "eager", "adam").total_bytes == plan.total_bytes


def test_muon_and_lbfgs():
    net = torch.nn.Sequential(torch.nn.Linear(16, 16, bias=False), torch.nn.Linear(16, 8))
    with pytest.raises(InputError, match="Muon.*only supports 2D"):
        mt.estimate(net, (torch.randn(2, 16),), "eager", "muon")
    weights = [p for p in net.parameters() if p.dim() == 2]
    plan = mt.estimate(net, (torch.randn(2, 16),), "eager", torch.optim.Muon(weights))
    assert plan.fixed_bytes["optimizer"] == 4 * (16 * 16 + 8 * 16)
    optimizer = torch.optim.LBFGS(net.parameters(), history_size=5)
    unit = sum(p.nbytes for p in net.parameters())
    plan = mt.estimate(net, (torch.randn(2, 16),), "eager", optimizer)
    assert 12 * unit < plan.fixed_bytes["optimizer"] < 18 * unit  # twice the history, and some


def test_parameters_without_a_gradient_count_nothing():
    net, x = WithLoss(), torch.randn(8, 96)
    net.layers[2].requires_grad_(False)
    trained = sum(p.nbytes + p.nbytes + 4 for p in net.parameters() if p.requires_grad)
    for optimizer in ("Adam", torch.optim.Adam, torch.optim.Adam(net.parameters())):
        assert mt.estimate(net, (x,), "eager", optimizer).fixed_bytes["optimizer"] == trained
    other = torch.optim.Adam(torch.nn.Linear(4, 4).parameters())
    assert mt.estimate(net, (x,), "eager", other).fixed_bytes["optimizer"] == 0


def test_sparse_gradients():
    parameters = [torch.nn.Parameter(torch.randn(50, 8))]
    made = optimizer_named("sparseadam").bytes_of(parameters)
    assert made.held_bytes == 2 * 50 * 8 * 4


def test_counting_leaves_everything_as_it_was():
    net, x = WithLoss(), torch.randn(8, 96)
    optimizer = OfUser(net.parameters(), 1e-3, 0.1)
    called = []
    optimizer.register_step_pre_hook(lambda *a: called.append("before"))
    everywhere = optimizers.register_optimizer_step_post_hook(
        lambda *a: called.append("global"))
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    net(x).backward()
    optimizer.step()
    called.clear()
    before = copy.deepcopy([list(net.parameters()), [p.grad for p in net.parameters()],
                            optimizer.state_dict(), optimizer.shadows, torch.get_rng_state(),
                            schedule.state_dict()])
    kinds = list(optimizers._foreach_supported_types)
    for asked in (optimizer, Greedy(net.parameters())):
        mt.plan(net, (x,), "100%", "eager", optimizer=asked)
    everywhere.remove()
    after = [list(net.parameters()), [p.grad for p in net.parameters()], optimizer.state_dict(),
             optimizer.shadows, torch.get_rng_state(), schedule.state_dict()]
    assert repr(before) == repr(after) and not called
    assert optimizers._foreach_supported_types == kinds
    assert isinstance(optimizer.state, defaultdict) and len(optimizer.state) == 6


def test_a_budget_holds_at_both_moments():
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU())
                                for _ in range(8)])
    x = torch.randn(512, 32)
    optimizer = torch.optim.Adam(net.parameters(), foreach=True)
    plan = mt.plan(net, (x,), "60%", "eager", optimizer=optimizer)
    assert plan.schedule.recomputed() and plan.total_bytes <= plan.budget_bytes
    compiled = mt.compile(net, "60%", "eager", optimizer=optimizer)

    def step():
        output = compiled(x)
        output.backward(torch.ones_like(output))
        optimizer.step()
        return output
    for _ in range(2):
        step()
        optimizer.zero_grad()
    before = sum(p.nbytes for p in net.parameters()) + x.nbytes + held_by(optimizer)
    assert peak_bytes(step, torch.device("cpu")) + before <= plan.budget_bytes
    assert mt.plans(compiled)[0].total_bytes == plan.total_bytes


@pytest.mark.parametrize("mode", ("eager", "inductor"))
def test_the_optimizer_step_may_refuse_a_budget(mode):
    net, x = WithLoss(), torch.randn(8, 96)
    optimizer = torch.optim.Adam(net.parameters(), foreach=True)
    whole = mt.estimate(net, (x,), mode, optimizer)
    assert whole.total_bytes > 5 * sum(p.nbytes for p in net.parameters())
    with pytest.raises(InfeasibleBudget, match="the optimizer's step takes") as refused:
        mt.plan(net, (x,), whole.total_bytes - 1, mode, optimizer=optimizer)
    assert refused.value.minimum_bytes == refused.value.bound_bytes == whole.total_bytes
    plan = mt.plan(net, (x,), whole.total_bytes, mode, optimizer=optimizer)
    assert plan.total_bytes == whole.total_bytes
    compiled = mt.compile(net, whole.total_bytes, mode, optimizer=optimizer)
    compiled(x).backward()
    assert mt.plans(compiled)[0].total_bytes == whole.total_bytes


def test_the_state_of_an_object_counts_at_every_size():
    """From the third sizes on a graph is planned again with parameters that have no memory."""
    torch._dynamo.reset()
    net = torch.nn.Sequential(*[layer for _ in range(8) for layer in (
        torch.nn.Linear(64, 64), torch.nn.GELU())])
    step = mt.compile(net, "80%", mode="eager", costs="reference",
                      optimizer=torch.optim.Adam(net.parameters()))
    for rows in (512, 256, 560):
        step(torch.randn(rows, 64)).sum().backward()
        net.zero_grad()
    plans = mt.plans(step)
    held_bytes = 2 * sum(p.nbytes for p in net.parameters())
    assert len(plans) == 3 and all(
        held_bytes <= plan.fixed_bytes["optimizer"] < 1.01 * held_bytes for plan in plans)


def test_plan_with_an_optimizer_runs_without_naming_it_again(tmp_path):
    net, x = WithLoss(), torch.randn(8, 96)
    plan = mt.plan(net, (x,), None, "eager", optimizer="adam")
    plan.save(tmp_path / "plan.json")
    from memonger import load_plan
    loaded = load_plan(str(tmp_path / "plan.json"))
    compiled = mt.compile(net, plan=loaded)
    assert mt.verify(compiled, net, (x,)).identical
    assert mt.plans(compiled)[0].total_bytes == plan.total_bytes


def test_names():
    net, x = WithLoss(), torch.randn(8, 96)
    with pytest.raises(InputError, match="unknown optimizer 'adma'.*adafactor, adagrad, adam"):
        mt.estimate(net, (x,), "eager", "adma")
    with pytest.raises(InputError, match="SGD has no option 'speed'; it has lr, momentum"):
        mt.estimate(net, (x,), "eager", "sgd", {"speed": 1})
    with pytest.raises(InputError, match="optimizer must be a name"):
        mt.estimate(net, (x,), "eager", 3)

    class Stubborn(torch.optim.SGD):
        def step(self, closure=None):
            raise RuntimeError("only on Mondays")
    with pytest.raises(InputError, match="Stubborn.*only on Mondays.*optimizer=\"adam\""):
        mt.estimate(net, (x,), "eager", Stubborn(net.parameters()))
