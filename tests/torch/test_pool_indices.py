"""Eager mode keeps max-pooling's positions in a small type: same numbers, fewer bytes."""
from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_nets import Counter, same, trained

import memonger.torch as mt
from memonger.torch.calls.tracing import traced
from memonger.torch.rewrite import eager
from memonger.torch.step.request import Request


class Pooled(nn.Module):
    """Layers with a pooling between two convolutions."""

    def __init__(self, pool, convolution=nn.Conv2d):
        super().__init__()
        self.first, self.second = convolution(2, 4, 3, padding=1), convolution(4, 3, 1)
        self.pool = pool

    def forward(self, x):
        return self.second(self.pool(F.relu(self.first(x))).sin()).square().mean()


def kept(module, x):
    """Types of the pooling's positions that a joint graph keeps for backward."""
    joint = traced(module, (x,), Request(mode="eager", unplanned=True)).captured.joint
    return [str(node.kwargs["dtype"])[6:] for node in joint.graph.nodes
            if node.target is torch.ops.aten._to_copy.default
            and node.kwargs["dtype"] is not torch.int64]


CASES = [
    (partial(F.max_pool2d, kernel_size=3, stride=2, padding=1), nn.Conv2d, (2, 2, 16, 16), "uint8"),
    (partial(F.max_pool2d, kernel_size=2, dilation=3, ceil_mode=True, stride=3), nn.Conv2d,
     (2, 2, 16, 17), "uint16"),
    (partial(F.max_pool2d, kernel_size=5, stride=1), nn.Conv2d, (1, 2, 256, 256), "uint16"),
    (partial(F.max_pool2d, kernel_size=9, stride=7), nn.Conv2d, (1, 2, 256, 257), "uint32"),
    (partial(F.adaptive_max_pool2d, output_size=5), nn.Conv2d, (2, 2, 13, 19), "uint8"),
    (partial(F.max_pool1d, kernel_size=4), nn.Conv1d, (2, 2, 300), "uint16"),
    (partial(F.max_pool3d, kernel_size=3, padding=1), nn.Conv3d, (2, 2, 7, 8, 9), "uint16"),
    (partial(F.adaptive_max_pool3d, output_size=3), nn.Conv3d, (2, 2, 5, 6, 7), "uint8")]


@pytest.mark.parametrize("pool,convolution,shape,dtype", CASES)
def test_gradients_are_those_of_the_module_bit_for_bit(pool, convolution, shape, dtype):
    torch.manual_seed(0)
    module, x = Pooled(pool, convolution), torch.randn(shape)
    assert kept(module, x) == [dtype]
    twin = copy.deepcopy(module)
    assert same(trained(mt.compile(module, mode="eager"), module, (x,)),
                trained(twin, twin, (x,)))


@pytest.mark.parametrize("name", ["ties", "nan", "channels last", "bfloat16"])
def test_values_and_layouts_of_every_kind(name):
    module, x = Pooled(partial(F.max_pool2d, kernel_size=3, stride=2, padding=1)), \
        torch.randn(2, 2, 20, 20)
    if name == "ties":
        x = x.round()
    elif name == "nan":
        x[0, 0, 3] = float("nan")
    elif name == "channels last":
        module, x = module.to(memory_format=torch.channels_last), \
            x.to(memory_format=torch.channels_last)
    else:
        module, x = module.bfloat16(), x.bfloat16()
    twin = copy.deepcopy(module)
    numbers = trained(mt.compile(module, mode="eager"), module, (x,))
    expected = trained(twin, twin, (x,))
    assert all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(numbers, expected))


def test_positions_that_somebody_else_reads_stay_as_they_are():
    def pool(x):
        y, indices = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(y, indices, 2)
    module, x = Pooled(pool), torch.randn(2, 2, 8, 8)
    assert kept(module, x) == []
    twin = copy.deepcopy(module)
    assert same(trained(mt.compile(module, mode="eager"), module, (x,)),
                trained(twin, twin, (x,)))


def test_a_plan_counts_the_smaller_positions_to_the_byte(monkeypatch):
    module, x = Pooled(partial(F.max_pool2d, kernel_size=2)), torch.randn(4, 2, 32, 32)
    counter, run = Counter(), eager.Program.run
    step = mt.compile(module, mode="eager")
    step(x).backward()
    [plan] = mt.plans(step)

    def counted(program, args):
        with counter:
            return run(program, args)
    monkeypatch.setattr(eager.Program, "run", counted)
    module.zero_grad()
    step(x).backward()
    assert counter.peak == plan.pool_bytes
    sizes = {t.dtype: t.size_bytes for t in plan.graph.tensors if "int" in t.dtype}
    assert sizes == {"int64": 8 * 4 * 4 * 16 * 16, "uint16": 2 * 4 * 4 * 16 * 16}


def test_dynamic_planes_keep_int64():
    module, x = Pooled(partial(F.max_pool2d, kernel_size=2)), torch.randn(4, 2, 12, 12)
    twin = copy.deepcopy(module)
    planned = mt.compile(module, mode="eager", dynamic=True)
    for size in (12, 20):
        x = torch.randn(4, 2, size, size)
        assert same(trained(planned, module, (x,)), trained(twin, twin, (x,)))
