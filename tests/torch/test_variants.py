"""Loss layers are found in a module's graph, and run in chunks where a plan asks for it."""
from __future__ import annotations

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_nets import same, sentences, trained

import memonger.torch as mt
from memonger import load_plan
from memonger.errors import InputError, VerificationError
from memonger.plans.verification import Difference
from memonger.torch.pytorch import loss_layer
from memonger.torch.rewrite import loss_layers as variants

WORDS = 60


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(loss_layer, "LARGEST_CHUNK_BYTES", 4 * WORDS * 7)


class Words(nn.Module):
    """Two layers and a loss; the output layer has the embedding's weight, or its own."""

    def __init__(self, loss, tied=True, dtype=torch.float32):
        super().__init__()
        self.embedding, self.body = nn.Embedding(WORDS, 16), nn.Linear(16, 16)
        self.output = nn.Linear(16, WORDS, bias=False)
        if tied:
            self.output.weight = self.embedding.weight
        self.loss = loss
        self.to(dtype)

    def forward(self, tokens, target):
        hidden = self.body(self.embedding(tokens).tanh()).tanh()
        return self.loss(self.output, hidden, target)


def flat(**options):
    def loss(output, hidden, target):
        return F.cross_entropy(output(hidden).flatten(0, 1), target.flatten(), **options)
    return loss


def logarithms(output, hidden, target):
    return F.nll_loss(F.log_softmax(output(hidden), -1).transpose(1, 2), target, ignore_index=3)


def product(output, hidden, target):
    scores = hidden.reshape(-1, 16) @ output.weight.t()
    return nn.CrossEntropyLoss(reduction="sum")(scores.float(), target.view(-1))


def methods(output, hidden, target):
    scores = torch.matmul(hidden, output.weight.T).log_softmax(dim=2).permute(0, 2, 1)
    return nn.NLLLoss(reduction="none")(scores, target).mean()


def mixed(output, hidden, target):
    with torch.autocast("cpu", torch.bfloat16):
        return F.cross_entropy(output(hidden).mT, target, label_smoothing=0.1)


FOUND = {
    "mean": flat(), "sum": flat(reduction="sum"), "smoothed": flat(label_smoothing=0.2),
    "ignored": flat(ignore_index=5),
    "each": lambda *args: flat(reduction="none", ignore_index=5, label_smoothing=0.1)(*args).mean(),
    "logarithms": logarithms, "product": product, "methods": methods, "autocast": mixed}


def _read(scores, target):
    return F.cross_entropy(scores.flatten(0, 1), target.flatten()) + scores.amax()


OTHERS = {
    "scores are read": lambda output, hidden, target: _read(output(hidden), target),
    "scores are scaled": lambda output, hidden, target: flat()(
        lambda h: output(h) * 2, hidden, target),
    "bias": lambda output, hidden, target: flat()(
        lambda h: F.linear(h, output.weight, h.new_ones(WORDS)), hidden, target),
    "weighted": lambda output, hidden, target: flat(weight=hidden.new_ones(WORDS))(
        output, hidden, target),
    "probabilities": lambda output, hidden, target: F.cross_entropy(
        output(hidden).flatten(0, 1), F.one_hot(target.flatten(), WORDS).to(hidden.dtype)),
    "rows in another order": lambda output, hidden, target: F.cross_entropy(
        output(hidden).transpose(0, 1).flatten(0, 1), target.flatten()),
    "classes mixed": lambda output, hidden, target: F.cross_entropy(
        output(hidden).transpose(1, 2).reshape(-1, WORDS), target.flatten()),
    "twice logarithms": lambda output, hidden, target: flat()(
        lambda h: output(h).log_softmax(-1), hidden, target),
    "another dimension": lambda output, hidden, target: F.nll_loss(
        output(hidden).log_softmax(1).flatten(0, 1), target.flatten())}


def graphs_of(module, inputs):
    """Dynamo's graph of a module, and the same with its loss layers in chunks."""
    made = []

    def backend(graph, example_inputs):
        made.append(graph)
        return graph
    torch.compile(module, backend=backend, fullgraph=True)(*inputs)
    return made[0], variants.with_chunks(made[0])


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_losses_and_gradients_are_those_of_the_module_within_rounding(name, tied, dtype):
    torch.manual_seed(0)
    module, x = Words(FOUND[name], tied, dtype), sentences(4, 9, WORDS)
    _, chunks = graphs_of(module, x)
    assert chunks is not None and any(n.target is variants._in_chunks for n in chunks.graph.nodes)
    planned = mt.compile(module, None, "eager")
    twin = copy.deepcopy(module)
    expected = trained(planned, module, x, 1)

    def swapped(graph, example_inputs):
        return variants.with_chunks(graph)
    torch._dynamo.reset()
    numbers = trained(torch.compile(twin, backend=swapped, fullgraph=True), twin, x, 1)
    tolerance = 1e-5 if dtype is torch.float32 and name != "autocast" else 3e-2
    for mine, other in zip(numbers, expected):
        assert mine.dtype is other.dtype and mine.shape == other.shape
        assert (mine.double() - other.double()).abs().max() <= \
            tolerance * other.double().abs().max()


@pytest.mark.parametrize("name", OTHERS)
def test_other_layers_are_left_alone(name):
    module, x = Words(OTHERS[name]), sentences(9, 9, WORDS)
    assert graphs_of(module, x)[1] is None


@pytest.mark.parametrize("mode", ["eager", "inductor"])
def test_a_plan_takes_chunks_where_all_variants_are_asked_for_and_they_pay(mode, tmp_path):
    module, x = Words(flat()), sentences(16, 20, WORDS)
    whole = mt.estimate(module, x, mode)
    budgets = [int(share * whole.total_bytes) for share in (1.0, 0.7)]
    loose, tight = (mt.plan(module, x, budget, mode, variants="all", time_limit=1)
                    for budget in budgets)
    kinds = [{op.kind.split(".")[0] for op in plan.graph.ops} for plan in (loose, tight)]
    assert "memonger" not in kinds[0] and "memonger" in kinds[1]
    assert tight.baseline_total_bytes == whole.total_bytes and tight.total_bytes <= budgets[1]
    assert "in chunks" in str(tight) and "in chunks" not in str(loose)
    share = mt.plan(module, x, "70%", mode, variants="all", time_limit=1)
    [swept] = mt.sweep(module, x, ["70%"], mode, variants="all", time_limit=1)
    assert swept.graph.fingerprint == share.graph.fingerprint
    assert share.budget_bytes == budgets[1] and share.schedule == tight.schedule
    tight.save(str(tmp_path / "plan.json"))
    loaded = load_plan(str(tmp_path / "plan.json"))
    step = mt.compile(module, plan=loaded)
    found = mt.verify(step, module, x)
    assert found.ok and not found.identical and found.tolerance == 1e-3
    [plan] = mt.plans(step)
    assert plan.schedule == tight.schedule
    if mode == "eager":
        measured = mt.measure(step, x, 1)
        assert measured.total_bytes <= tight.budget_bytes


def test_exact_variants_and_networks_without_a_loss_layer_change_nothing():
    module, x = Words(flat()), sentences(16, 20, WORDS)
    exact = mt.plan(module, x, "95%", "eager", time_limit=1)
    assert all("memonger" not in op.kind for op in exact.graph.ops)
    other = Words(OTHERS["bias"])
    plans = [mt.plan(other, x, "95%", "eager", variants=v, time_limit=1) for v in ("all", "none")]
    assert plans[0].schedule == plans[1].schedule
    with pytest.raises(InputError, match="variants must be none, exact or all"):
        mt.plan(module, x, "95%", variants="some")


def test_without_gradients_a_module_with_chunks_runs_as_it_is():
    module, x = Words(flat()), sentences(16, 20, WORDS)
    step = mt.compile(module, "70%", "eager", variants="all", time_limit=1)
    step(*x).backward()
    assert any("memonger" in op.kind for op in mt.plans(step)[0].graph.ops)
    with torch.no_grad():
        assert torch.equal(step(*x), module(*x))


def test_a_larger_difference_is_no_rounding():
    module, x = Words(flat()), sentences(16, 20, WORDS)
    step = mt.compile(module, "70%", "eager", variants="all", time_limit=1)
    found = mt.verify(step, module, x)
    worse = mt.Verification((Difference(0, "loss", False, 0.5, 0.25, 0.5, found.tolerance),), 1)
    with pytest.raises(VerificationError):
        worse.check()


def test_the_same_numbers_each_time():
    module, x = Words(flat()), sentences(16, 20, WORDS)
    twin = copy.deepcopy(module)
    steps = [mt.compile(m, "70%", "eager", variants="all", time_limit=1) for m in (module, twin)]
    assert same(trained(steps[0], module, x), trained(steps[1], twin, x))
