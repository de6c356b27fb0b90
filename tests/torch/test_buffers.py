"""What a step reads and writes: backward works with the values as they were read."""
from __future__ import annotations

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.torch_version import TorchVersion
from torch_nets import Counter, same, trained

import memonger.torch as mt
from memonger.errors import InfeasibleBudget, VerificationError
from memonger.torch.calls.tracing import traced
from memonger.torch.capture import reading
from memonger.torch.capture.written import Written
from memonger.torch.check.measure import loss_of
from memonger.torch.check.verify import Others, compared
from memonger.torch.rewrite import eager
from memonger.torch.step.request import Request


def layers(width=16, depth=2):
    return nn.Sequential(*[part for _ in range(depth) for part in (
        nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())])


class Queue(nn.Module):
    """Keys of the last batches, as MoCo has them: read through a copy, then moved on."""

    def __init__(self, width=16, length=256):
        super().__init__()
        self.body, self.key = layers(width), layers(width)
        self.register_buffer("queue", F.normalize(torch.randn(width, length), dim=0))

    def forward(self, x):
        query = F.normalize(self.body(x), dim=1)
        with torch.no_grad():
            key = F.normalize(self.key(x), dim=1)
        scores = query @ self.queue.clone().detach()
        with torch.no_grad():
            self.queue.copy_(torch.cat([key.t(), self.queue[:, :-len(key)]], 1))
        return F.cross_entropy(scores, torch.arange(len(x)))


class Codebook(nn.Module):
    """Vectors that follow what they stand for, as VQ-VAE has them; two losses."""

    def __init__(self, width=16, words=8):
        super().__init__()
        self.before, self.after = layers(width), layers(width)
        self.register_buffer("words", torch.randn(words, width))

    def forward(self, x):
        x = self.before(x)
        index = torch.cdist(x, self.words).argmin(1)
        nearest = F.embedding(index, self.words)
        with torch.no_grad():
            members = F.one_hot(index, len(self.words)).to(x.dtype)
            self.words.lerp_(members.t() @ x, 0.1)
        return self.after(x + (nearest - x).detach()).square().mean(), F.mse_loss(nearest, x)


class Swapped(nn.Module):
    """Two buffers that change places each step, and a part of one that is a buffer, too."""

    def __init__(self, width=16):
        super().__init__()
        self.body = layers(width)
        self.register_buffer("one", torch.randn(width, width))
        self.register_buffer("other", torch.randn(width, width))
        self.register_buffer("part", self.one[:4])

    def forward(self, x):
        x = self.body(x @ self.other.t().clone()) @ self.one.clone()
        x = x[:, :4].tanh() @ self.part.detach().clone()
        with torch.no_grad():
            before = self.one.clone()
            self.one.copy_(self.other)
            self.other.copy_(before)
        return x.square().mean()


def total(output):
    return sum(output) if isinstance(output, tuple) else output


def rows(batch=32, width=16):
    torch.manual_seed(1)
    return (torch.randn(batch, width),)


def least(module, x, mode, share=0.0):
    """A budget between the smallest total and the unplanned one."""
    plan = mt.plan(module, x, mode=mode, overhead=None, time_limit=1)
    return int(plan.total_bytes + share * (plan.baseline_total_bytes - plan.total_bytes))


@pytest.mark.parametrize("share", [None, 0.0, 0.5])
@pytest.mark.parametrize("net", [Queue, Codebook, Swapped])
def test_eager_plans_read_buffers_before_they_are_written(net, share):
    torch.manual_seed(0)
    module, x = net(), rows()
    twin = copy.deepcopy(module)
    budget = None if share is None else least(module, x, "eager", share)
    planned = mt.compile(module, budget, "eager", time_limit=1)
    numbers = trained(planned, module, x, 3, total)
    assert bool(mt.plans(planned)[0].schedule.recomputed()) == (share is not None)
    assert same(numbers, trained(twin, twin, x, 3, total))


class All(nn.Module):
    """All three, for one compilation."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([Queue(8, 64), Codebook(8), Swapped(8)])

    def forward(self, x):
        return sum(total(part(x)) for part in self.parts)


@pytest.mark.parametrize("budget", [None, "90%"])
def test_code_of_inductor_reads_buffers_before_they_are_written(budget):
    """PyTorch 2.13's own is wrong here: it drops the module's copies, which 2.15 keeps."""
    torch.manual_seed(0)
    module, x = All(), rows(16, 8)
    twin = copy.deepcopy(module)
    planned = mt.compile(module, budget, time_limit=1)
    numbers = trained(planned, module, x)
    for one, other in zip(numbers, trained(twin, twin, x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    [plan] = mt.plans(planned)
    copies = [op for op in plan.graph.ops if op.name.endswith(":copy")]
    kept = [op for op in plan.graph.ops if op.kind == "aten.clone.default" and not op.is_backward]
    late = {tensor for op in plan.graph.ops if op.is_backward for tensor in op.inputs}
    assert all(op.outputs[0] in late for op in copies)
    assert late.intersection(tensor for op in copies or kept for tensor in op.outputs)
    again = [plan.graph.ops[op] for op in plan.schedule.recomputed()]
    written = {k for k, tensor in enumerate(plan.graph.tensors) if tensor.category == "aux"}
    assert not any(written.intersection(op.inputs) for op in again)


class NewStatistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(*[part for _ in range(4) for part in (
            nn.Linear(32, 32), nn.BatchNorm1d(32), nn.GELU())])

    def forward(self, x):
        return self.net(x).square().mean()


@pytest.mark.parametrize("batch", [32, 63, 128])
def test_statistics_of_a_small_batch_stay_with_the_first_run(batch):
    module, x = NewStatistics(), rows(batch, 32)
    twin = copy.deepcopy(module)
    planned = mt.compile(module, least(module, x, "eager"), "eager", time_limit=1, costs="cpu")
    numbers = trained(planned, module, x)
    [plan] = mt.plans(planned)
    again = [plan.graph.ops[op].name for op in plan.schedule.recomputed()]
    assert any("batch_norm" in name for name in again)
    assert same(numbers, trained(twin, twin, x))


class Cosines(torch.autograd.Function):
    """Backward works on what it saved before it needs the incoming gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos().cumsum(0).exp()


class WithCosines(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = layers()

    def forward(self, x):
        return Cosines.apply(Cosines.apply(self.body(x))).square().mean()


@pytest.mark.parametrize("mode", ["eager", "inductor"])
def test_what_backward_does_without_the_gradient_runs_in_backward(mode):
    graph = traced(WithCosines(), rows(), Request(mode=mode, unplanned=True)).captured.graph
    sums = [op for op in graph.ops if "cumsum" in op.kind]
    assert len(sums) == 2 and all(op.is_backward for op in sums)
    assert not any("cos" in op.kind for op in graph.ops if not op.is_backward)


def test_its_memory_is_counted_there(monkeypatch):
    counter, run = Counter(), eager.Program.run

    def counted(program, args):
        with counter:
            return run(program, args)
    module, x = WithCosines(), rows()
    twin = copy.deepcopy(module)
    step = mt.compile(module, mode="eager")
    monkeypatch.setattr(eager.Program, "run", counted)
    step(*x).backward()
    [plan] = mt.plans(step)
    assert counter.peak == plan.pool_bytes
    twin(*x).backward()
    assert same([p.grad for p in module.parameters()], [p.grad for p in twin.parameters()])


def test_a_budget_below_what_must_stay_is_refused():
    """What is read before it is written cannot be had again."""
    module, x = Queue(), rows()
    with pytest.raises(InfeasibleBudget):
        mt.compile(module, least(module, x, "eager") - 1, "eager", time_limit=1)(*x)


def without_protection(monkeypatch):
    """Plant the fault: what forward writes into is read again in backward."""
    monkeypatch.setattr(reading, "written", lambda *_: Written(set(), set(), [], []))


def test_verify_finds_that_code_reads_what_it_has_written(monkeypatch):
    """The unplanned code has the same fault: only the module by itself tells."""
    without_protection(monkeypatch)
    torch.manual_seed(0)
    module = Queue(8, 32)
    x = rows(8, 8)
    found = mt.verify(mt.compile(module), module, x)
    if TorchVersion(torch.__version__) >= "2.15":  # its partitioner keeps the module's copies
        assert found.ok
        return
    assert found.identical and not found.ok and found.beside_module
    with pytest.raises(VerificationError, match="Do not train with this plan"):
        found.check()
    assert "NOT the same network" in str(found)


class Amplified(nn.Module):
    """The last bits of a float32 are hundredths of what it gives."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(999))

    def forward(self, x):
        return (1e5 * nn.functional.layer_norm(x * self.weight, (999,))).sin().mean()


@pytest.mark.parametrize("fault, ok", [(0.0, True), (1e-8, False)])
def test_float64_judges_what_may_be_rounding_that_a_module_amplifies(fault, ok):
    """Elements of ReLUs at zero did so in a small network, with torch.compile alone, too."""
    torch.manual_seed(0)
    module, x = Amplified(), (torch.randn(64, 999),)

    def compiled(net):
        def call(x):
            values = x * net.weight
            off = values - values.flip(1).mean(1, keepdim=True)
            off = off * (off.square().mean(1, keepdim=True) + 1e-5).rsqrt()
            return (1e5 * (1 + fault) * off).sin().mean()
        return call
    found = compared(compiled(module), module, Others(lambda net: net, compiled, compiled), x, 1,
                     lambda: False, lambda: False)
    assert found.identical and found.ok == ok and found.in_double
    assert max(d.max_rel for d in found.beside) > 2e-3
    assert ("in float64 they agree" in str(found)) == ok
    assert ("in float64, too" in str(found)) != ok


def test_verify_says_no_where_an_eager_plan_reads_what_it_has_written(monkeypatch):
    """PyTorch stops such a backward pass; the module by itself trains."""
    without_protection(monkeypatch)
    module, x = Queue(), rows()
    planned = mt.compile(module, least(module, x, "eager"), "eager", time_limit=1)
    found = mt.verify(planned, module, x)
    assert not found.ok and "modified by an inplace operation" in str(found)
    with pytest.raises(VerificationError, match="stops where the module by itself trains"):
        found.check()


def test_verify_goes_back_from_all_outputs():
    module, x = Codebook(), rows()

    def wrong_second(*args):
        first, second = module(*args)
        return first, second + 0.5 * (second - second.detach())
    for call, ok in ((module, True), (wrong_second, False)):
        found = compared(call, module, Others(*[lambda net: net] * 3), x, 2,
                         lambda: True, lambda: False)
        assert found.ok == ok
    assert {"output 0", "output 1"} <= {d.tensor for d in found.differences}
    output = module(*x)
    assert loss_of(output).item() == pytest.approx(sum(output).item())


def test_verify_sees_gradients_that_a_plain_sum_would_hide():
    module = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16))
    x = rows()
    found = mt.verify(mt.compile(module, mode="eager"), module, x, steps=1)
    assert found.identical
    module.zero_grad()
    module(*x).sum().backward()
    assert module[0].weight.grad.abs().max() < 1e-3


def test_verify_puts_everything_back():
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = layers()
            self.register_buffer("seen", torch.zeros(()), persistent=False)

        def forward(self, x):
            y = self.body(x.clone()).square().mean()
            with torch.no_grad():
                self.seen += 1
                x.mul_(2)
            return y
    module, (x,) = Writes(), rows()
    module(x.clone()).backward()
    before = [t.clone() for t in (x, module.seen, *(p.grad for p in module.parameters()))]
    assert mt.verify(mt.compile(module, mode="eager"), module, (x,)).identical
    assert same(before, [x, module.seen, *(p.grad for p in module.parameters())])


@pytest.mark.slow
def test_verify_of_random_numbers_that_inductor_draws_in_its_own_way():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.5), nn.Linear(64, 1))
    found = mt.verify(mt.compile(module), module, rows(), steps=1)
    assert found.ok and not found.beside_module
