"""Cross-entropy in chunks against PyTorch's own in float64."""
from __future__ import annotations

import copy
import time

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_nets import same, sentences, trained

import memonger.torch as mt
from memonger.errors import InputError
from memonger.torch.pytorch import loss_layer
from memonger.torch.pytorch.allocations import peak_bytes


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(loss_layer, "LARGEST_CHUNK_BYTES", 4 * 50 * 7)  # seven rows of 50 words


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_loss_and_gradients(dtype, tolerance, reduction, smoothing):
    torch.manual_seed(0)
    hidden = torch.randn(4, 5, 16, dtype=dtype, requires_grad=True)
    weight = torch.randn(50, 16, dtype=dtype).mul_(0.3).requires_grad_()
    target = torch.randint(0, 50, (4, 5))
    target[1, 2:4] = -100
    ours = mt.linear_cross_entropy(hidden, weight, target, label_smoothing=smoothing,
                                   reduction=reduction)
    exact = [t.detach().double().requires_grad_() for t in (hidden, weight)]
    theirs = F.cross_entropy(F.linear(*exact).flatten(0, 1), target.flatten(),
                             label_smoothing=smoothing, reduction=reduction)
    upstream = torch.rand_like(ours)
    ours.backward(upstream)
    theirs.backward(upstream.double().flatten() if reduction == "none" else upstream.double())
    assert torch.allclose(ours.double().flatten(), theirs.flatten(), rtol=tolerance, atol=tolerance)
    for mine, other in zip((hidden, weight), exact):
        scale = other.grad.abs().max()
        assert (mine.grad.double() - other.grad).abs().max() <= tolerance * scale


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows,words,width", [(300, 200, 48), (40, 50, 8), (20, 200, 48)])
def test_what_it_takes_while_it_runs_is_known(dtype, rows, words, width):
    hidden, weight = torch.randn(rows, width, dtype=dtype), torch.randn(words, width, dtype=dtype)
    target, scale, kept = torch.randint(0, words, (rows,)), torch.ones(rows), []

    def run():
        kept[:] = loss_layer._run(hidden, weight, target, scale, -100, 0.1, True)
    run()
    kept.clear()
    peak = peak_bytes(run, torch.device("cpu"))
    known = loss_layer.temporary_bytes("memonger.linear_cross_entropy.default",
                                       [hidden, weight, target, scale])
    outputs = sum(t.untyped_storage().nbytes() for t in kept)
    scores = torch.zeros(rows, words, dtype=dtype)
    products = [(hidden, weight.t()), (scores, weight), (scores.t(), hidden)]
    for a, b in products:
        a @ b
    own = max(peak_bytes(lambda a=a, b=b: kept.__setitem__(0, a @ b), torch.device("cpu"))
              - a.shape[0] * b.shape[1] * a.element_size() for a, b in products)
    assert 0.6 * known <= peak - outputs <= known + own
    assert loss_layer.temporary_bytes("aten.mm.default", [hidden, weight]) == 0


def steps_of(rows, words=4000, width=128, dtype=torch.bfloat16):
    """Weight and target, and training steps of the layer and of the same without chunks."""
    torch.manual_seed(0)
    hidden = torch.randn(rows, width).to(dtype).requires_grad_()
    weight = torch.randn(words, width).mul_(0.05).to(dtype).requires_grad_()
    target = torch.randint(0, words, (rows,))

    def step(loss):
        def run():
            hidden.grad = weight.grad = None
            loss(hidden, weight).backward()
        return run
    return hidden, weight, target, step(lambda h, w: mt.linear_cross_entropy(h, w, target)), \
        step(lambda h, w: F.cross_entropy(F.linear(h, w).float(), target))


@pytest.mark.parametrize("rows, dtype, reduction", [
    (64, torch.bfloat16, "mean"), (512, torch.float16, "mean"), (512, torch.bfloat16, "none"),
    pytest.param(4096, torch.bfloat16, "mean", marks=pytest.mark.slow)])
def test_weights_of_16_bits(rows, dtype, reduction, monkeypatch):
    """Beside hidden states and their gradients it takes 1.5 times the weight's bytes; results are
    as exact as without chunks."""
    monkeypatch.setattr(loss_layer, "LARGEST_CHUNK_BYTES", 64 << 20)
    hidden, weight, target, _, _ = steps_of(rows, 20000, 256, dtype)
    target[3::7] = -100
    exact = [t.detach().float().requires_grad_() for t in (hidden, weight)]

    def step(h, w, ours):
        h.grad = w.grad = None
        if ours:
            loss = mt.linear_cross_entropy(h, w, target, label_smoothing=0.1, reduction=reduction)
        else:
            loss = F.cross_entropy(F.linear(h, w).float(), target, label_smoothing=0.1,
                                   reduction=reduction)
        loss.sum().backward()
    step(*exact, False)
    errors = []
    for ours in (False, True):
        step(hidden, weight, ours)
        errors.append([((t.grad.float() - e.grad).norm() / e.grad.norm()).item()
                       for t, e in zip((hidden, weight), exact)])
    assert all(mine <= 1.1 * theirs for mine, theirs in zip(errors[1], errors[0]))
    hidden.grad = weight.grad = None
    peak = peak_bytes(lambda: step(hidden, weight, True), torch.device("cpu"))
    assert peak <= 1.5 * weight.nbytes + hidden.nbytes


def test_a_second_pass_is_a_product_more():
    """Its products and passes are counted where there are several chunks in 16 bits."""
    kind = "memonger.linear_cross_entropy.default"
    for dtype, rows, products in ((torch.bfloat16, 24, 3), (torch.bfloat16, 512, 4),
                                  (torch.float32, 512, 3)):
        operands = [torch.empty(rows, 64, dtype=dtype), torch.empty(4000, 64, dtype=dtype)]
        assert loss_layer.flops(kind, operands) == 2 * products * rows * 4000 * 64
        passes = 18 if products == 4 else 11
        assert loss_layer.score_bytes(kind, operands) == passes * 4 * rows * 4000


def test_no_rows():
    hidden, weight, target, _, _ = steps_of(0, 50, 64)
    mt.linear_cross_entropy(hidden, weight, target, reduction="sum").backward()
    assert not weight.grad.any() and hidden.grad.shape == (0, 64)


def test_backward_twice_and_of_a_multiple():
    hidden, weight, target, _, _ = steps_of(24, 50, 64, torch.float32)
    loss = mt.linear_cross_entropy(hidden, weight, target)
    once = torch.autograd.grad(loss, (hidden, weight), retain_graph=True)
    kept = [t.clone() for t in once]
    for gradient in once:
        gradient.zero_()
    again = torch.autograd.grad(2 * loss, (hidden, weight), retain_graph=True)
    last = torch.autograd.grad(3 * loss, (hidden, weight))
    for one, two, three in zip(kept, again, last):
        assert torch.equal(2 * one, two) and torch.allclose(3 * one, three)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_few_rows_take_no_more_time(threads):
    """Steps in turn; the bound is wide, as machines are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        *_, ours, plain = steps_of(96, 20000, 256)
        times = {ours: [], plain: []}
        for _ in range(15):
            for step, found in times.items():
                started_s = time.perf_counter()
                step()
                found.append(time.perf_counter() - started_s)
        assert min(times[ours]) <= 1.25 * min(times[plain])
    finally:
        torch.set_num_threads(before)


class Model(nn.Module):
    """Embedding and output layer share a weight."""

    def __init__(self, chunks):
        super().__init__()
        self.embedding, self.body = nn.Embedding(50, 16), nn.Linear(16, 16)
        self.chunks = chunks

    def forward(self, tokens, target):
        hidden = self.body(self.embedding(tokens)).tanh()
        if self.chunks:
            return mt.linear_cross_entropy(hidden, self.embedding.weight, target)
        scores = F.linear(hidden, self.embedding.weight)
        return F.cross_entropy(scores.flatten(0, 1), target.flatten())


@pytest.mark.parametrize("mode", ["eager", "inductor"])
def test_it_is_traced_as_one_op_and_takes_less(mode):
    model, x = Model(True), sentences(words=50)
    plain, twin = Model(False), copy.deepcopy(model)
    plain.load_state_dict(model.state_dict())
    less, more = (mt.estimate(m, x, mode) for m in (model, plain))
    assert any(op.kind == "memonger.linear_cross_entropy.default" for op in less.graph.ops)
    assert less.pool_bytes < more.pool_bytes
    numbers = trained(mt.compile(model, mode=mode), model, x)
    assert mode == "inductor" or same(numbers, trained(twin, twin, x))
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(numbers, trained(plain, plain, x)))


def test_it_refuses_what_does_not_fit():
    hidden, weight, target = torch.randn(3, 4), torch.randn(9, 4), torch.zeros(3, dtype=torch.int64)
    with pytest.raises(InputError, match="do not fit"):
        mt.linear_cross_entropy(hidden, weight.t(), target)
    with pytest.raises(InputError, match="reduction must be"):
        mt.linear_cross_entropy(hidden, weight, target, reduction="max")
