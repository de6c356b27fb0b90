"""Modules with checkpoints of their own: unplanned they are as they are written, in both modes."""
from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from torch_nets import Counter, same, trained

import memonger.torch as mt
from memonger.torch.pytorch.allocations import peak_bytes
from memonger.torch.rewrite import eager


class Block(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm, self.mixed = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = dropout

    def forward(self, x):
        q, k, v = (z.view(*x.shape[:2], 4, -1).transpose(1, 2)
                   for z in self.mixed(self.norm(x)).chunk(3, -1))
        x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        return x + F.dropout(self.narrow(F.gelu(self.wide(self.norm(x)))), self.dropout)


def matrices_are_kept(context, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.addmm.default else \
        CheckpointPolicy.PREFER_RECOMPUTE


#: Options of each block's checkpoint; None: it has none.
KINDS = {
    "none": None, "whole": {"use_reentrant": False},
    "selective": {"use_reentrant": False, "context_fn": partial(
        create_selective_checkpoint_contexts, matrices_are_kept)}}


class Stack(nn.Module):
    def __init__(self, kind, dropout=0.0, width=16, blocks=2):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(blocks))
        self.kind = kind

    def forward(self, x):
        for block in self.blocks:
            options = KINDS[self.kind]
            x = block(x) if options is None else checkpoint(block, x, **options)
        return x.square().mean()


def rows():
    torch.manual_seed(1)
    return (torch.randn(8, 24, 16),)


def peak(call, module, inputs):
    """By the allocator's events, of a step after the first."""
    for _ in range(2):
        module.zero_grad(set_to_none=True)
        call(*inputs).backward()
    module.zero_grad(set_to_none=True)
    return peak_bytes(lambda: call(*inputs).backward(), torch.device("cpu"))


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["whole", "selective"])
def test_eager_mode_without_a_plan_is_the_module_as_it_is_written(kind, dropout, monkeypatch):
    module, x = Stack(kind, dropout), rows()
    step = mt.compile(module, mode="eager")
    numbers = trained(step, module, x)
    twin, third = Stack(kind, dropout), Stack(kind, dropout)
    assert same(numbers, trained(twin, twin, x))
    assert same(numbers, trained(torch.compile(third, backend="aot_eager"), third, x))
    [plan] = mt.plans(step)
    found, run = Counter(), eager.Program.run

    def counted(program, args):
        with found:
            return run(program, args)
    module.zero_grad(set_to_none=True)
    monkeypatch.setattr(eager.Program, "run", counted)
    loss = step(*x)
    loss.backward()
    assert found.peak == plan.pool_bytes == mt.estimate(module, x, "eager").pool_bytes
    monkeypatch.undo()
    # Masks of dropout are kept, a byte for each element, where PyTorch draws them again.
    assert plan.pool_bytes <= 1.03 * peak(twin, twin, x)
    assert plan.pool_bytes < 0.8 * mt.estimate(Stack("none", dropout), x, "eager").pool_bytes


@pytest.mark.parametrize("kind", ["whole", pytest.param("selective", marks=pytest.mark.slow)])
def test_inductor_without_a_plan_is_the_module_as_it_is_written(kind):
    module, x = Stack(kind), rows()
    step = mt.compile(module)
    numbers = trained(step, module, x)
    taken = peak(step, module, x)
    [plan] = mt.plans(step)
    assert plan.pool_bytes == pytest.approx(taken, rel=0.1)
    torch._dynamo.reset()
    twin = Stack(kind)
    plain = torch.compile(twin)
    assert same(numbers, trained(plain, twin, x))
    assert taken == peak(plain, twin, x)


def test_a_budget_that_the_written_module_keeps_changes_nothing():
    module, x = Stack("whole"), rows()
    unplanned = mt.estimate(module, x, "eager")
    plan = mt.plan(module, x, "100%", "eager")
    assert plan.method == "none" and plan.schedule == unplanned.schedule
    assert plan.schedule.recomputed()
    assert any("as they are written" in note for note in plan.notes)


@pytest.mark.parametrize("mode", ["eager", "inductor"])
def test_a_plan_may_undo_checkpoints_and_says_so(mode):
    module, x = Stack("whole", 0.2), rows()
    twin = copy.deepcopy(module)
    step = mt.compile(module, "95%", mode)
    numbers = trained(step, module, x)
    [plan] = mt.plans(step)
    assert plan.total_bytes <= plan.budget_bytes
    assert any("of 2 of the module's own checkpoints" in note for note in plan.notes)
    assert same(numbers, trained(mt.compile(twin, mode=mode), twin, x))
    module.zero_grad(set_to_none=True)
    if mode == "eager":
        assert plan.total_bytes - plan.fixed_bytes["parameters"] >= peak(step, module, x)
