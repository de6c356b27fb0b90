"""Values that lie on the host between forward and backward: ``host=`` and ``link=``."""
from __future__ import annotations

import copy

import pytest
import torch
import torch.nn as nn
from torch_nets import Attention, Convolutions, Pixels, images, pictures, same, sentences, trained

import memonger.torch as mt
from memonger.errors import InfeasibleBudget, InputError, UnitError
from memonger.graph.decisions import read_as_handed_on
from memonger.graph.in_use import graph_in_use
from memonger.torch.pytorch import private_copies, private_ops
from memonger.torch.pytorch.allocations import peak_bytes
from memonger.torch.step import planning
from memonger.torch.times.link import link_bytes_per_s, measured_bytes_per_s

CASES = [(Convolutions, images, "80%"), (Attention, sentences, "85%")]
FUSED = {"costs": "reference", "host": "1GB", "link": "25TB/s", "time_limit": 2}
HOST = {"mode": "eager", **FUSED}


class Layers(nn.Module):
    """Products that take long beside the copies of what they make."""

    def __init__(self, layers=8, width=1024):
        super().__init__()
        self.layers = nn.Sequential(*[
            nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers)])

    def forward(self, x):
        return self.layers(x).square().mean()


def offloaded(plan):
    return [plan.graph.variants[k].name for k in plan.schedule.variants]


@pytest.mark.parametrize("net,inputs,budget", CASES)
def test_training_is_that_of_the_module(net, inputs, budget):
    module, x = net(), inputs()
    twin = copy.deepcopy(module)
    planned = mt.compile(module, budget, **HOST)
    numbers = trained(planned, module, x)
    [plan] = mt.plans(planned)
    assert "offload" in offloaded(plan) and plan.host_bytes > 0
    assert same(numbers, trained(twin, twin, x))


@pytest.mark.parametrize("net,inputs,budget", CASES)
def test_the_allocator_hands_out_what_is_predicted(net, inputs, budget):
    module, x = net(), inputs()
    # What kernels take while they run is measured unless costs are those of another device.
    planned = mt.compile(module, budget, **{**HOST, "costs": "auto"})

    def step():
        module.zero_grad()
        planned(*x).backward()
    step()
    module.zero_grad()
    [plan] = mt.plans(planned)
    gradient_of_loss = 4  # counts as there before the step
    assert peak_bytes(step, torch.device("cpu")) == plan.pool_bytes + gradient_of_loss
    assert plan.total_bytes <= plan.budget_bytes


@pytest.mark.parametrize("net,inputs", [(Attention, sentences), (Pixels, pictures)])
def test_compiled_code_moves_what_its_plan_does(net, inputs):
    """Of ``Pixels`` Inductor lays some values with their channels last. In its own order for the
    least memory it would fetch all of ``Attention``'s as backward begins."""
    module, x = net(), inputs()
    twin = copy.deepcopy(module)
    planned = mt.compile(module, "60%", **FUSED)
    numbers = trained(planned, module, x)
    [plan] = mt.plans(planned)
    assert "offload" in offloaded(plan) and 0 < plan.host_bytes <= 10**9
    for one, other in zip(numbers, trained(torch.compile(twin), twin, x)):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    module.zero_grad()
    gradient_of_loss = 4
    measured_bytes = mt.measure(planned, x, 1).peak_bytes
    assert measured_bytes == plan.pool_bytes + gradient_of_loss <= 1.01 * plan.predicted_pool_bytes
    assert plan.total_bytes <= plan.budget_bytes


class Squares(nn.Module):
    """What is cheap to make again from a product is made again from its copy."""

    def __init__(self, layers=6, width=64):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            x = torch.tanh(x) * torch.sigmoid(x) + torch.sin(x)
        return x.square().mean()


@pytest.mark.parametrize("mode,budget", [("eager", "45%"), ("inductor", "60%")])
def test_what_was_fetched_is_read_by_what_runs_again(mode, budget):
    module, x = Squares(), (torch.randn(512, 64),)
    twin = copy.deepcopy(module)
    planned = mt.compile(module, budget, **{**FUSED, "mode": mode, "link": "100GB/s"})
    numbers = trained(planned, module, x)
    [plan] = mt.plans(planned)
    assert read_as_handed_on(graph_in_use(plan.graph, plan.schedule), plan.schedule)
    plain = trained(twin, twin, x)
    assert mode == "inductor" or same(numbers, plain)
    for one, other in zip(numbers, plain):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    gradient_of_loss = 4
    module.zero_grad()
    more_bytes = mt.measure(planned, x, 1).peak_bytes - plan.pool_bytes - gradient_of_loss
    # A loss's kernel takes a few numbers while it runs, which only a profile counts.
    assert 0 <= more_bytes <= 16 * (mode == "eager")
    assert plan.total_bytes <= plan.budget_bytes


def test_copies_on_a_gpu_are_what_graphs_say():
    """PyTorch's operators give what fake tensors say of ours, whichever dimension comes last."""
    ours = torch.ops.memonger
    with private_ops.fake_tensors():
        for strides in ((90, 1, 18, 3), (90, 30, 6, 1)):
            value = torch.empty_strided((4, 3, 5, 6), strides, device="cuda")
            host = private_copies.wait(private_copies.store(value, strides), value)
            back = private_copies.arrived(
                private_copies.fetch(host, value.shape, strides, value.device))
            shown = ours.wait(ours.store(value, strides), value)
            assert (host.device.type, host.shape, host.dtype) == (
                shown.device.type, shown.shape, shown.dtype) == ("cpu", (360,), value.dtype)
            assert (back.device, back.shape, back.stride()) == (
                value.device, value.shape, value.stride())


def blocks():
    layer = nn.TransformerEncoderLayer(4096, 32, 16384, batch_first=True, dropout=0.0)
    return nn.TransformerEncoder(layer, 4), torch.empty(64, 1024, 4096)


@pytest.mark.parametrize("made,budget,host", [
    (lambda: (Layers(), torch.empty(4096, 1024)), "50%", "16GB"), (blocks, "40%", "500GB")])
def test_copies_beside_kernels_cost_a_fraction_of_recomputation(made, budget, host):
    with torch.device("meta"):
        module, x = made()
    alone = mt.plan(module, (x,), budget, "eager", costs="reference")
    plan = mt.plan(module, (x,), budget, "eager", costs="reference", host=host, link="25GB/s")
    assert 0 < alone.overhead and plan.overhead <= alone.overhead / 5
    assert plan.bound <= plan.overhead
    assert plan.total_bytes <= plan.budget_bytes == alone.budget_bytes
    assert plan.baseline_total_bytes == alone.baseline_total_bytes


def test_a_step_without_moves_is_not_planned_where_it_is_proven_dearer(monkeypatch):
    planned, plan_of = [], planning.plan_of
    monkeypatch.setattr(planning, "plan_of", lambda network: planned.append(
        bool(network.captured.moves)) or plan_of(network))
    with torch.device("meta"):
        module, x = Layers(), torch.empty(4096, 1024)
    mt.plan(module, (x,), "50%", "eager", costs="reference", host="16GB", link="15GB/s")
    assert planned == [True]
    planned.clear()
    mt.plan(module, (x,), "50%", "eager", costs="reference", host="16GB", link="1MB/s")
    assert planned[:2] == [True, False]


@pytest.mark.parametrize("link", ["15GB/s", "1MB/s"])
def test_a_large_step_is_searched_among_moves_from_its_plan_without_them(link, monkeypatch):
    planned, plan_of = [], planning.plan_of
    monkeypatch.setattr(planning, "plan_of", lambda network: planned.append(network) or plan_of(
        network))
    monkeypatch.setattr(planning, "_LARGE_OPS", 10)
    with torch.device("meta"):
        module, x = Layers(), torch.empty(4096, 1024)
    plan = mt.plan(module, (x,), "50%", "eager", costs="reference", host="16GB", link=link)
    assert [bool(network.captured.moves) for network in planned] == [False, True]
    assert plan.overhead <= planned[1].request.given.overhead
    assert bool(plan.host_bytes) == (link == "15GB/s")


@pytest.mark.parametrize("host", [0, 3 * 4096 * 1024 * 4])
def test_values_on_the_host_stay_within_its_budget(host):
    with torch.device("meta"):
        module, x = Layers(), torch.empty(4096, 1024)
    plan = mt.plan(module, (x,), "50%", "eager", costs="reference", host=host, link="25GB/s")
    assert plan.host_bytes <= host and bool(plan.host_bytes) == bool(host)


def test_a_budget_that_recomputation_meets_is_met_beside_a_host():
    """Values that may move are made again once for all their readers."""
    module, x = Attention(), sentences()
    least = mt.plan(module, x, mode="eager", overhead="300%", costs="reference", time_limit=4)
    plan = mt.plan(module, x, least.total_bytes, **HOST)
    assert plan.total_bytes <= least.total_bytes


def test_slow_copies_are_not_taken():
    with torch.device("meta"):
        module, x = Layers(), torch.empty(4096, 1024)
    plan = mt.plan(module, (x,), "60%", "eager", costs="reference", host="16GB", link="1MB/s")
    assert not offloaded(plan) and plan.schedule.recomputed()


@pytest.mark.parametrize("mode", ["eager", "inductor"])
def test_a_plan_is_told_saved_and_followed(tmp_path, mode):
    module, x = Attention(), sentences()
    plan = mt.plan(module, x, "85%", **{**HOST, "mode": mode})
    assert offloaded(plan)
    assert str(plan) and plan.explain(next(iter(plan.decisions)))
    assert "offload" in set(plan.decisions.values())
    assert not any(name.startswith(("store:", "wait:")) for name in plan.decisions)
    path = str(tmp_path / "plan.json")
    plan.save(path)
    twin = copy.deepcopy(module)
    followed = mt.compile(module, plan=path)
    numbers = trained(followed, module, x)
    assert mt.plans(followed)[0].schedule == plan.schedule
    assert same(numbers, trained(twin if mode == "eager" else torch.compile(twin), twin, x))
    plan.report(str(tmp_path / "plan.html"))


def test_other_sizes_keep_the_budget():
    module = Attention()
    planned = mt.compile(module, mt.plan(module, sentences(16), "90%", "eager").budget_bytes,
                         **HOST)
    for batch in (8, 16, 4):
        planned(*sentences(batch)).backward()
    assert all(plan.total_bytes <= plan.budget_bytes for plan in mt.plans(planned))


def test_what_cannot_be_asked_is_said():
    module, x = Attention(), sentences()
    with pytest.raises(InputError, match="give host="):
        mt.plan(module, x, "80%", "eager", link="25GB/s")
    with pytest.raises(UnitError):
        mt.compile(module, "80%", "eager", host="1GB", link="25GB")
    with pytest.raises(InfeasibleBudget):
        mt.plan(module, x, "1%", **HOST)


def test_one_of_several_results_of_an_op_may_go():
    """Attention's own output comes with the numbers that its gradient needs."""
    class Attend(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

        def forward(self, x):
            for layer in self.layers:
                heads = layer(x).unflatten(-1, (4, 16)).transpose(1, 2)
                x = nn.functional.scaled_dot_product_attention(heads, heads, heads) \
                    .transpose(1, 2).flatten(2)
            return x.sum()

    torch.manual_seed(0)
    module, x = Attend(), torch.randn(8, 64, 64)
    twin = copy.deepcopy(module)
    planned = mt.compile(module, "70%", **HOST)
    numbers = trained(planned, module, (x,))
    [plan] = mt.plans(planned)
    moved = [name for name, what in plan.decisions.items() if "offload" in what]
    assert any("scaled_dot_product" in name for name in moved)
    assert same(numbers, trained(twin, twin, (x,)))


def test_the_speed_of_copies_is_measured_where_there_is_a_gpu():
    device = torch.device("cpu")
    assert link_bytes_per_s(device) == 25e9
    found = measured_bytes_per_s(device)
    assert 1e8 < found < 1e13 and found == measured_bytes_per_s(device)
