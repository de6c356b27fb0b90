"""Random modules whose buffers are read, written and read again, beside plain PyTorch."""
from __future__ import annotations

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_nets import trained

import memonger.torch as mt
from memonger.errors import InfeasibleBudget

WIDTH, BUFFERS = 8, 3


@torch.library.custom_op("memonger_tests::bent", mutates_args=())
def bent(buffer: torch.Tensor) -> torch.Tensor:
    return buffer.sin()


@torch.library.custom_op("memonger_tests::drift", mutates_args=("buffer",))
def drift(buffer: torch.Tensor, by: torch.Tensor) -> None:
    buffer.mul_(0.5).add_(by)


bent.register_fake(torch.empty_like)
drift.register_fake(lambda buffer, by: None)

#: How the values of a buffer are had before the step goes on: all are new tensors.
READ = {
    "clone": lambda b: b.clone(),
    "clone of a view": lambda b: b.t().clone(),
    "detached clone": lambda b: b.detach().clone().detach(),
    "view of a clone": lambda b: b.clone().t(),
    "chain": lambda b: (b.t() * 0.9).sin().t() + 0.1,
    "chain of views": lambda b: b[1:].t().clone() @ b[1:],
    "rows": lambda b: F.embedding(b.abs().argmax(1), b),
    "mask": lambda b: (b > 0).to(b.dtype),
    "custom": bent,
    "custom of a view": lambda b: bent(b.t().contiguous()),
    "expanded": lambda b: b[:1].expand(WIDTH, WIDTH).clone(),
}
#: How a buffer gets new values, of a mean of values of the step.
WRITE = {
    "copy_": lambda b, mean: b.copy_(0.9 * b + 0.1 * mean),
    "in place": lambda b, mean: b.mul_(0.9).add_(mean),
    "lerp_": lambda b, mean: b.lerp_(mean.expand(WIDTH, WIDTH), 0.1),
    "through a view": lambda b, mean: b.t().mul_(0.5),
    "a row": lambda b, mean: b[0].copy_(mean),
    "moved on": lambda b, mean: b.copy_(torch.cat([mean[None], b[:-1]])),
    "turned": lambda b, mean: b.copy_(b.t().clone()),
    "custom": drift,
}
USE = {
    "product": lambda x, r: (x @ r).tanh(),
    "scale": lambda x, r: x * r.sum(0),
    "shift": lambda x, r: x + r[:1],
    "chosen": lambda x, r: torch.where(r[0] > 0, x, x.sin()),
}
BUFFER = st.integers(0, BUFFERS - 1)
ACTIONS = st.lists(st.one_of(
    st.tuples(st.just("layer")),
    st.tuples(st.just("read"), BUFFER, st.sampled_from(sorted(READ)), st.sampled_from(sorted(USE))),
    st.tuples(st.just("write"), BUFFER, st.sampled_from(sorted(WRITE))),
    st.tuples(st.just("swap"), BUFFER, BUFFER)), min_size=3, max_size=9)


class Random(nn.Module):
    """Does one action after the other; two outputs."""

    def __init__(self, actions):
        super().__init__()
        torch.manual_seed(0)
        self.actions = [("layer",), *actions, ("layer",)]
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in self.actions)
        for number in range(BUFFERS):
            self.register_buffer("b%d" % number, torch.randn(WIDTH, WIDTH))

    def forward(self, x):
        other = x.mean()
        for layer, (word, *details) in zip(self.layers, self.actions):
            buffer = getattr(self, "b%d" % details[0]) if details else None
            if word == "layer":
                x = F.gelu(layer(x))
                other = other + x.square().mean()
            elif word == "read":
                x = USE[details[2]](x, READ[details[1]](buffer))
            else:
                with torch.no_grad():
                    if word == "write":
                        WRITE[details[1]](buffer, x.detach().mean(0))
                    else:
                        second = getattr(self, "b%d" % details[1])
                        before = buffer.clone()
                        buffer.copy_(second)
                        second.copy_(before)
        return x.sin().mean(), other


def check(actions, mode, shares, **more):
    """The module and its plans train alike."""
    torch.manual_seed(1)
    x = (torch.randn(16, WIDTH),)
    module = Random(actions)
    twin = copy.deepcopy(module)
    wanted = trained(twin, twin, x, loss=sum)
    for share in shares:
        torch._dynamo.reset()
        planned = copy.deepcopy(module)
        least = mt.plan(planned, x, mode=mode, overhead=None, time_limit=0.5)
        room = least.baseline_total_bytes - least.total_bytes
        budget = None if share is None else int(least.total_bytes + share * room)
        try:
            numbers = trained(mt.compile(planned, budget, mode, time_limit=0.5, **more),
                              planned, x, loss=sum)
        except InfeasibleBudget:  # Inductor's code may take more
            assert mode == "inductor"
            continue
        for one, other in zip(numbers, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)


@settings(max_examples=4, deadline=None, derandomize=True)
@given(ACTIONS)
def test_random_buffers_with_eager_plans(actions):
    check(actions, "eager", (None, 0.0))


@settings(max_examples=3, deadline=None, derandomize=True)
@given(ACTIONS)
def test_random_buffers_with_values_on_the_host(actions):
    check(actions, "eager", (0.5,), host="1GB", link="25TB/s")


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(ACTIONS)
def test_many_random_buffers_with_values_on_the_host(actions):
    check(actions, "eager", (0.1, 0.5), host="1GB", link="25TB/s")


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(ACTIONS)
def test_many_random_buffers_with_eager_plans(actions):
    check(actions, "eager", (None, 0.0, 0.5))


def test_buffers_with_code_of_inductor():
    check([("read", 0, "clone of a view", "product"), ("write", 0, "moved on"),
           ("read", 1, "rows", "scale"), ("swap", 1, 2), ("read", 0, "custom", "shift"),
           ("write", 2, "custom"), ("read", 2, "mask", "chosen")], "inductor", (0.5,))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(ACTIONS)
def test_many_random_buffers_with_code_of_inductor(actions):
    check(actions, "inductor", (None, 0.0, 0.5))
