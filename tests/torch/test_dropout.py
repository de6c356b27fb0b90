"""Eager mode computes what dropout gives again from its mask: same draws, fewer bytes."""
from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_nets import same, trained

import memonger.torch as mt
from memonger.torch.calls.tracing import traced
from memonger.torch.pytorch import private_kernels
from memonger.torch.step.request import Request


class Dropping(nn.Module):
    """Dropout before each projection, which keeps what it reads."""

    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = layer(F.dropout(x.sin(), 0.3, self.training))
        return x.square().mean()


@pytest.mark.parametrize("p", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_mask_and_values_are_those_of_one_operator_bit_for_bit(p, dtype):
    data = torch.randn(50, 33).to(dtype).t()
    torch.manual_seed(3)
    values, mask = torch.ops.aten.native_dropout(data, p, True)
    after = torch.rand(1)
    torch.manual_seed(3)
    drawn = torch.ops.memonger.dropout_mask(data, p)
    assert torch.equal(after, torch.rand(1))
    assert torch.equal(mask, drawn)
    dropped = torch.ops.memonger.dropped(data, drawn, p)
    assert torch.equal(values, dropped) and values.stride() == dropped.stride()


@pytest.mark.parametrize("recompute", [(), ("*",)])
def test_gradients_are_those_of_the_module_bit_for_bit(recompute):
    torch.manual_seed(0)
    module, x = Dropping(), torch.randn(64, 32)
    plan = mt.plan(module, (x,), mode="eager", recompute=recompute)
    twin = copy.deepcopy(module)
    assert same(trained(mt.compile(module, plan=plan), module, (x,)), trained(twin, twin, (x,)))


def test_what_dropout_gives_is_computed_again_from_a_mask_that_stays():
    module, x = Dropping(), torch.randn(64, 32)
    plan = mt.plan(module, (x,), mode="eager", recompute=("*",))
    again = {plan.graph.ops[op].kind for op in plan.schedule.recomputed()}
    assert "memonger.dropped.default" in again
    assert "memonger.dropout_mask.default" not in again
    assert mt.verify(mt.compile(module, plan=plan), module, (x,)).identical
    measured = mt.measure(mt.compile(module, plan=plan), (x,))
    assert abs(measured.total_bytes - plan.total_bytes) < 64  # the loss and its like


def test_dropout_that_drops_nothing_stays_as_it_is():
    graph = traced(Dropping().eval(), (torch.randn(64, 32),), Request(
        mode="eager", unplanned=True)).captured.graph
    assert not any(op.kind.startswith("memonger") for op in graph.ops)


def test_masks_stay_where_another_kernel_would_draw_other_numbers(monkeypatch):
    module, x = Dropping(), torch.randn(64, 32)

    def again():
        plan = mt.plan(module, (x,), recompute=("*",))
        return {plan.graph.ops[op].kind for op in plan.schedule.recomputed()}
    assert "aten.gt.Scalar" in again()
    monkeypatch.setattr(private_kernels, "is_drawn_by_kernel", private_kernels.is_random)
    kinds = again()
    assert kinds and "aten.gt.Scalar" not in kinds


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_two_versions_draw_by_the_kernel_on_a_gpu(device):
    drawn = SimpleNamespace(
        target=SimpleNamespace(overloadpacket="prims.inductor_random"),
        meta={"val": SimpleNamespace(device=torch.device(device))})
    version = tuple(map(int, torch.__version__.split(".")[:2]))
    assert private_kernels.is_drawn_by_kernel(drawn) == (
        device == "cuda" and (2, 13) <= version < (2, 15))
