"""Steps of several graphs under one budget: modules that break their graph, and blocks."""
from __future__ import annotations

import copy
import logging

import pytest
import torch
import torch.nn as nn
from torch_nets import same

import memonger.torch as mt
from memonger.errors import InfeasibleBudget, InputError
from memonger.torch.pytorch.allocations import peak_bytes
from memonger.torch.pytorch.module_step import bytes_before

WIDTH = 64


def layers(count=3):
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())
                           for _ in range(count)])


class Broken(nn.Module):
    """Two parts with dropout and BatchNorm, and code between that breaks the graph."""

    def __init__(self, between):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(layers(), nn.Dropout(0.2), nn.BatchNorm1d(WIDTH), layers(2))
        self.second = nn.Sequential(layers(), nn.Dropout(0.1), layers(2))
        self.weight = nn.Parameter(torch.rand(WIDTH))
        self.between, self.calls = between, []

    def forward(self, x):
        hidden = self.first(x)
        crossed = self.between(self, hidden)
        return (self.second(crossed) + crossed).square().mean()


class Sine(torch.autograd.Function):
    """A user's own gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return gradient * x.cos()


@torch._dynamo.disable
def counts(module, x):
    module.calls.append(len(x))
    return x


def says(module, x):
    torch._dynamo.graph_break()
    return x


def item(module, x):
    return x * 2 if x.abs().max().item() > 1e9 else x


def branch(module, x):
    return x * 2 if x.sum() > 1e9 else x


def loop(module, x):
    for value in x[:3, 0].tolist():
        x = x + 1 if value > 1e9 else x
    return x


def numpy(module, x):
    return x + torch.from_numpy(x.detach().numpy().clip(-1e-9, 1e-9)).to(x.dtype)


def log(module, x):
    logging.getLogger("some").info("shape %s", x.shape)
    return x


def claim(module, x):
    assert not torch.isnan(x).any()
    return x


@torch._dynamo.disable
def rows(module, x):
    return x[x[:, 0] > 0]


@torch._dynamo.disable
def own_gradient(module, x):
    return Sine.apply(x)


@torch._dynamo.disable
def in_place(module, x):
    return x.mul_(1.5)


@torch._dynamo.disable
def weighted(module, x):
    return x * module.weight


@torch._dynamo.disable
def file(module, x):
    open(__file__).close()
    return x


BREAKS = pytest.mark.parametrize("between", [
    says, item, branch, loop, numpy, log, claim, rows, own_gradient, in_place, weighted, file,
    counts])


class Experts(nn.Module):
    """Each row goes to one of some networks, which are called in a loop."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gate = nn.Linear(WIDTH, 3)
        self.before, self.behind = layers(), layers()
        self.experts = nn.ModuleList([layers() for _ in range(3)])

    def forward(self, x):
        x = self.before(x)
        shares = self.gate(x.detach() * 20).softmax(-1)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mine = (shares.argmax(-1) == number).nonzero().flatten()
            if mine.numel():
                result = result.index_add(0, mine, expert(x[mine]) * shares[mine, number, None])
        return self.behind(result).square().mean()


class Constants(nn.Module):
    """A graph without a tensor among its inputs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = layers(5)

    def forward(self, x):
        made = torch.arange(WIDTH).float() / WIDTH
        torch._dynamo.graph_break()
        return (self.net(x) + made).square().mean()


class Outputs(nn.Module):
    """Three parts; a caller gets what crosses, too."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.ModuleList([layers() for _ in range(3)])

    def forward(self, x):
        first = self.parts[0](x)
        torch._dynamo.graph_break()
        second = self.parts[1](first)
        torch._dynamo.graph_break()
        return {"loss": self.parts[2](first + second).square().mean(), "hidden": (first, second)}


class Averaged(nn.Module):
    """BatchNorm breaks the graph, and no graph reads the argument."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(layers(2), nn.BatchNorm1d(WIDTH, momentum=None), layers())

    def forward(self, x):
        return self.net(x).square().mean()


@torch._dynamo.disable
def waves(x):
    return x.sin().exp().cos().square()


class Ahead(nn.Module):
    """What eager code makes, and keeps for backward, is read by the graph after the next."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.ModuleList([layers(1), layers(1), nn.Sequential(*[
            nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, WIDTH))
            for _ in range(2)])])

    def forward(self, x):
        x = self.parts[0](x)
        made = waves(x)
        x = self.parts[1](x)
        torch._dynamo.graph_break()
        return self.parts[2](x + made).square().mean()


class Blocks(nn.Module):
    """Equal blocks between layers of their own."""

    def __init__(self, count=4):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList([
            nn.Sequential(layers(2), nn.Dropout(0.1)) for _ in range(count)])
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x).square().mean()


def data(count=256):
    torch.manual_seed(1)
    return torch.randn(count, WIDTH)


def loss_of(output):
    return output["loss"] if isinstance(output, dict) else output


def trained(call, module, x, steps=2):
    """All numbers of some steps."""
    numbers = []
    torch.manual_seed(7)
    for _ in range(steps):
        module.zero_grad(set_to_none=True)
        loss = loss_of(call(x))
        loss.backward()
        numbers += [loss.detach().clone(), *(p.grad.clone() for p in module.parameters()
                                             if p.grad is not None)]
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter -= 0.01 * parameter.grad
        numbers += [b.clone() for b in module.buffers()]
    return numbers


def taken(call, module, x):
    """The total of a step by the allocator's events."""
    def step():
        module.zero_grad(set_to_none=True)
        output = call(x)
        loss_of(output).backward()
        return output
    step()
    module.zero_grad(set_to_none=True)
    found = peak_bytes(step, torch.device("cpu")) + bytes_before(module, x)
    module.zero_grad(set_to_none=True)
    return found


def keeps(module, x, share="75%"):
    """A planned module, trained beside the module by itself, and measured."""
    plain = copy.deepcopy(module)
    planned = mt.compile(module, share, "eager")
    assert same(trained(planned, module, x), trained(plain, plain, x))
    plan = mt.plans(planned)[-1]
    assert plan.schedule.recomputed()
    assert taken(planned, module, x) <= plan.budget_bytes
    assert plan.total_bytes <= plan.budget_bytes < plan.baseline_total_bytes
    return planned


@BREAKS
def test_breaking_code_trains_bit_for_bit_within_the_budget_of_the_step(between):
    module = Broken(between)
    planned = keeps(module, data())
    if between is not rows:  # whose number is another one each time
        plan, = mt.plans(planned)
        assert 0.85 * plan.total_bytes < taken(
            planned, module, data()) <= 1.01 * plan.total_bytes
    assert module.calls == ([256] * 6 if between is counts else [])


@pytest.mark.parametrize("kind", [
    Experts, Outputs, Constants, Averaged, Ahead])
def test_other_forms_of_steps_keep_the_budget(kind):
    keeps(kind(), data(), "80%")


def test_the_first_step_keeps_the_budget_too():
    module, x = Broken(says), data()
    mt.compile(copy.deepcopy(module), "75%", "eager")(x).backward()  # measures operators
    planned = mt.compile(module, "75%", "eager")

    def step():
        planned(x).backward()
    used = peak_bytes(step, torch.device("cpu")) + bytes_before(module, x)
    assert used <= mt.plans(planned)[0].budget_bytes


def test_inductor_keeps_the_predicted_budget_of_the_step():
    module, x = Broken(own_gradient).eval(), data()
    plain = copy.deepcopy(module)
    planned = mt.compile(module, "85%")
    for one, other in zip(trained(planned, module, x), trained(plain, plain, x)):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    plan, = mt.plans(planned)
    assert taken(planned, module, x) <= 1.01 * plan.total_bytes <= 1.01 * plan.budget_bytes
    assert any("not tried" in note for note in plan.notes)
    assert plan.schedule.recomputed()


@pytest.mark.parametrize("between", [item, file])
def test_without_a_budget_it_trains_and_strict_refuses_it(between):
    module = Broken(between)
    plain = copy.deepcopy(module)
    assert same(trained(mt.compile(module, mode="eager"), module, data()),
                trained(plain, plain, data()))
    with pytest.raises(InputError, match="one graph"):
        mt.compile(module, "75%", "eager", strict=True)(data())


def test_a_refusal_leaves_everything_as_it_was():
    module, x = Broken(says), data()
    planned = mt.compile(module, "15%", "eager")
    state = copy.deepcopy(module.state_dict())
    for _ in range(2):
        random = torch.get_rng_state()
        with pytest.raises(InfeasibleBudget) as refused:
            planned(x)
        assert torch.equal(random, torch.get_rng_state())
        assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    total_bytes = refused.value.minimum_bytes
    module = Broken(says)
    assert taken(mt.compile(module, total_bytes, "eager"), module, x) <= total_bytes


def test_other_sizes_keep_the_budget_or_are_refused():
    module = Broken(item)
    planned = mt.compile(module, "80%", "eager")
    budget_bytes = None
    for count in (256, 200, 300):
        used = taken(planned, module, data(count))
        budget_bytes = budget_bytes or mt.plans(planned)[0].budget_bytes
        assert used <= budget_bytes
    with pytest.raises(InfeasibleBudget):
        planned(data(4000))
    assert taken(planned, module, data(256)) <= budget_bytes
    assert all(plan.budget_bytes == budget_bytes for plan in mt.plans(planned))


@pytest.mark.parametrize("module, blocks", [
    (Broken(says), None), (Blocks(), "layers.*")], ids=["breaks", "blocks"])
def test_the_first_plan_serves_the_largest_inputs(module, blocks):
    budget_bytes = mt.plan(module, (data(300),), "80%", "eager").budget_bytes
    planned = mt.compile(module, budget_bytes, "eager", blocks=blocks,
                         max_inputs=(torch.empty(300, WIDTH, device="meta"),))
    for count in (100, 300, 200):
        assert taken(planned, module, data(count)) <= budget_bytes
        plan, = mt.plans(planned)
        assert plan.schedule.recomputed()
    with pytest.raises(InfeasibleBudget):
        mt.compile(module, budget_bytes, "eager", blocks=blocks,
                   max_inputs=(torch.empty(3000, WIDTH, device="meta"),))(data(100))


def test_a_branch_that_values_choose_is_planned_when_it_is_met():
    def doubled(module, x):
        return module.first(x) if x.sum() > 0 else x
    module, x = Broken(doubled), data()
    plain = copy.deepcopy(module)
    planned = mt.compile(module, "80%", "eager")
    for sign in (1, -1, 1, -1):
        for net, call in ((module, planned), (plain, plain)):
            net.zero_grad()
            with torch.no_grad():
                net.first[3][1][0].bias.fill_(sign)
            torch.manual_seed(3)
            call(x).backward()
        assert same([p.grad for p in module.parameters() if p.grad is not None],
                    [p.grad for p in plain.parameters() if p.grad is not None])
        assert taken(planned, module, x) <= mt.plans(planned)[0].budget_bytes
    assert len(mt.plans(planned)) >= 2


def test_calls_without_gradients_run_and_are_checked():
    module, x = Broken(says), data()
    planned = mt.compile(module, "75%", "eager")
    planned(x).backward()
    module.eval()
    with torch.no_grad():
        assert planned(x) == module(x)
        with pytest.raises(InfeasibleBudget, match="no gradient is taken"):
            planned(data(20000))


def test_a_plan_of_the_whole_step_is_made_and_followed(tmp_path):
    module, x = Broken(item), data()
    state, random = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    plan = mt.plan(module, (x,), "75%", "eager")
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert mt.estimate(module, (x,), "eager").total_bytes == plan.baseline_total_bytes
    assert "recompute" in plan.explain(next(
        name for name, what in plan.decisions.items() if "recompute" in what)) and str(plan)
    plan.save(str(tmp_path / "plan.json"))
    planned = mt.compile(module, plan=str(tmp_path / "plan.json"))
    assert taken(planned, module, x) <= plan.budget_bytes
    assert mt.plans(planned)[0].schedule == plan.schedule
    mt.verify(planned, module, (x,)).check()


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("how", ["pattern", "modules"])
def test_blocks_share_the_budget_of_the_step(how, in_place):
    module, x = Blocks(), data()
    plain = copy.deepcopy(module)
    blocks = "layers.*" if how == "pattern" else list(module.layers)
    planned = mt.compile(module, "75%", "eager", blocks=blocks, in_place=in_place)
    assert same(trained(planned, module, x), trained(plain, plain, x))
    plan, = mt.plans(planned)
    assert taken(planned, module, x) <= plan.budget_bytes < plan.baseline_total_bytes
    assert plan.schedule.recomputed()
    assert taken(plain, plain, x) > plan.budget_bytes
    assert trained(copy.deepcopy(planned), module, x)


def test_blocks_that_are_none_are_refused():
    for blocks in ("layer.*", [nn.Linear(2, 2)]):
        with pytest.raises(InputError, match="blocks="):
            mt.compile(Blocks(), "75%", "eager", blocks=blocks)
    with pytest.raises(InputError, match="function"):
        mt.compile(lambda x: x, "75%", "eager", blocks="layers.*")


def test_nothing_is_left_in_the_module():
    module = Experts()
    mt.compile(module, "80%", "eager")(data()).backward()
    assert all(part._compiled_call_impl is None for part in module.modules())


def test_an_accumulated_batch_and_a_second_call_before_backward():
    module, x = Broken(says), data()
    plain = copy.deepcopy(module)
    planned = mt.compile(module, "80%", "eager")
    found = []
    for net, call in ((module, planned), (plain, plain)):
        torch.manual_seed(5)
        for _ in range(2):
            first, second = call(x), call(x * 2)
            (first + second).backward()
        found.append([p.grad for p in net.parameters() if p.grad is not None])
    assert same(*found)
