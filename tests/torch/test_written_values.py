"""Ops that write into what another op makes, as in graphs of engines, which are not functional."""
from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from memonger.torch.capture.reading import read


def normalized(x):
    return x * x.pow(2).mean(-1, keepdim=True).add_(1e-6).rsqrt()


def counted(x):
    largest = x.argmax(1, keepdim=True)
    return x + torch.zeros_like(x).scatter_(1, largest, 1.0)


def read_in_between(x):
    mean = x.mean(-1, keepdim=True)
    twice = mean * 2
    return x * mean.add_(1) * twice


def drawn(x):
    return x * torch.empty_like(x).bernoulli_(0.5)


def captured_of(function):
    return read(make_fx(lambda x: [function(x)], tracing_mode="fake")(torch.randn(8, 4)), 1)


@pytest.mark.parametrize("function, maker, writer, reads", [
    (normalized, "mean", "add_", 1), (counted, "zeros_like", "scatter_", 2)])
def test_what_one_op_makes_and_the_next_writes_into_is_made_again_by_both(
        function, maker, writer, reads):
    captured = captured_of(function)
    op = next(op for op in captured.graph.ops if op.name == maker)
    number = captured.graph.ops.index(op)
    assert op.recomputable and len(op.inputs) == reads
    assert [captured.nodes[number].name, *(part.name for part in captured.parts[number])] \
        == [writer, maker]
    assert writer not in {op.name for op in captured.graph.ops}


def test_what_is_read_before_it_is_written_into_is_made_once():
    ops = {op.name: op for op in captured_of(read_in_between).graph.ops}
    assert ops["mean"].not_recomputable_because == "a later op writes into its result"
    assert ops["add_"].not_recomputable_because == "writes into its input"


def test_numbers_that_are_written_into_a_value_are_drawn_once():
    ops = {op.name: op for op in captured_of(drawn).graph.ops}
    assert [op.not_recomputable_because for name, op in ops.items() if "empty" in name] \
        == ["draws random numbers"]
