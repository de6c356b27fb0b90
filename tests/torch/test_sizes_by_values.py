"""Values whose size, or whose storage, no fake tensor tells: ``x[mask]``, sparse gradients."""
from __future__ import annotations

import pytest
import torch
from torch import nn

import memonger.torch as mt


def chain(width=64):
    return nn.Sequential(nn.Linear(16, width), nn.GELU(), nn.Linear(width, 16), nn.GELU())


class Masked(nn.Module):
    """Goes on with some rows of its input."""

    def __init__(self, rows):
        super().__init__()
        self.rows, self.before, self.behind = rows, chain(), chain()

    def forward(self, x):
        return self.behind(self.rows(self.before(x), x[:, 0] > 0)).sum()


class Words(nn.Module):
    """Embeddings with sparse gradients."""

    def __init__(self, kind, times=1):
        super().__init__()
        self.words, self.behind, self.times = kind(50, 16, sparse=True), chain(), times

    def forward(self, words):
        found = self.words(words)
        for _ in range(self.times - 1):
            found = found + self.words(words.flip(0))
        return self.behind(found).sum()


def gradients(module, call, *inputs):
    module.zero_grad()
    call(*inputs).backward()
    return [parameter.grad for parameter in module.parameters()]


def by_mask(y, mask):
    return y[mask]


def by_number(y, mask):
    return y[mask.nonzero()[:, 0]]


def both_right(module, compiled, x, exact):
    found, wanted = gradients(module, compiled, x), gradients(module, module, x)
    for one, other in zip(found, wanted):
        assert one.layout == other.layout
        if exact:
            assert torch.equal(one.to_dense(), other.to_dense())
        else:
            torch.testing.assert_close(one.to_dense(), other.to_dense(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [by_mask, by_number])
def test_rows_by_a_mask_count_with_the_most_that_they_can_be(rows):
    torch.manual_seed(0)
    module, x = Masked(rows), torch.randn(64, 16)
    compiled = mt.compile(module, budget="90%", mode="eager")
    for values in (x, torch.randn(64, 16), x.abs()):
        both_right(module, compiled, values, exact=True)
    plan, = mt.plans(compiled)
    assert plan.schedule.recomputed()
    assert any("count with the most" in note for note in plan.notes), plan.notes
    # All rows: nothing can take more.
    assert mt.measure(compiled, (x.abs(),), steps=1).total_bytes <= plan.total_bytes
    assert plan.total_bytes <= plan.budget_bytes


def test_inductor_trains_rows_by_a_mask():
    torch.manual_seed(0)
    module = Masked(by_mask)
    compiled = mt.compile(module, budget="95%")
    for _ in range(2):
        both_right(module, compiled, torch.randn(64, 16), exact=False)


def test_what_has_no_largest_size_is_named():
    torch.manual_seed(0)
    module = Masked(lambda y, mask: y.repeat_interleave(mask.long(), 0))
    compiled = mt.compile(module, budget="100%", mode="eager")
    both_right(module, compiled, torch.randn(64, 16), exact=True)
    plan, = mt.plans(compiled)
    assert any("not counted" in note and "repeat_interleave" in note for note in plan.notes)


@pytest.mark.parametrize("kind, times, mode", [
    (nn.Embedding, 1, "eager"), (nn.Embedding, 2, "eager"), (nn.EmbeddingBag, 1, "eager"),
    (nn.Embedding, 1, "inductor")])
def test_sparse_gradients(kind, times, mode):
    torch.manual_seed(0)
    module, words = Words(kind, times), torch.randint(0, 50, (16, 4))
    compiled = mt.compile(module, budget="95%", mode=mode)
    both_right(module, compiled, words, exact=mode == "eager")
    plan, = mt.plans(compiled)
    assert plan.schedule.recomputed()
    if kind is nn.Embedding:
        found = mt.measure(compiled, (words,), steps=1).total_bytes
        assert found <= plan.total_bytes <= plan.budget_bytes
