"""What PyTorch can trace as one graph is planned; of the rest an error says what, where and why."""
from __future__ import annotations

import functools
import logging
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import memonger.torch as mt
from memonger.errors import InputError
from memonger.torch.calls.tracing import traced
from memonger.torch.step.request import Request

LOGGER = logging.getLogger("memonger.tests")
ADAPTER = logging.LoggerAdapter(LOGGER, {})


class Layer(nn.Module):
    """A layer, and whatever ``after`` makes of its result."""

    def __init__(self, after=lambda y: y):
        super().__init__()
        self.layer, self.after = nn.Linear(4, 4), after

    def forward(self, x):
        return self.after(self.layer(x))


def wrong_size(y):
    return y @ torch.ones(5, 2)


def refuses(y):
    if y.shape[0] != 7:
        raise ValueError("need 7 rows, got %d" % y.shape[0])
    return y


def branches(y):
    if y.sum() > 0:
        y = y * 2
    return y


def reads_a_file(y):
    return y * len(open(__file__).read())


def differing_branches(y):
    return torch.cond(y.sum() > 0, lambda y: y.sin(), lambda y: y.sum(0), (y,))


FAILURES = [
    (wrong_size, "return y @ torch.ones(5, 2)",
     "the module fails while PyTorch traces it: RuntimeError: .*\\[2, 4\\] X \\[5, 2\\]"),
    (refuses, "raise ValueError", "ValueError\\('need 7 rows, got 2'\\)"),
    (differing_branches, "return torch.cond", "torch.cond")]
BREAKS = [
    (branches, "if y.sum() > 0:", "cannot read the module as one graph.*Data-dependent branching.*"
                                  "torch.cond"),
    (reads_a_file, "open(__file__)", "cannot read the module as one graph")]


@pytest.mark.parametrize("after, line, said, call", [
    *((*failure, call) for failure in FAILURES for call in ("plan", "compiled")),
    *((*failure, "strict") for failure in BREAKS)])
def test_an_error_says_what_and_where(after, line, said, call):
    module, x = Layer(after), torch.ones(2, 4)
    with pytest.raises(InputError, match="(?s)" + said) as raised:
        if call == "plan":
            mt.estimate(module, (x,), mode="eager")
        else:
            mt.compile(module, mode="eager", strict=call == "strict")(x)
    source = Path(__file__).read_text().splitlines()
    place = raised.value.args[0].partition("%s:" % __file__)[2]
    assert line in source[int(place.partition(",")[0]) - 1]
    assert line in place and after.__name__ in place
    assert "Developer debug context" not in str(raised.value) and "\n" not in str(raised.value)


def test_a_wrong_size_in_a_layer_of_pytorch_names_the_line_that_calls_it():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(3, 3))
    with pytest.raises(InputError, match=r"(?s)\[2, 4\] X \[3, 3\].*linear.py:\d+, forward"):
        mt.estimate(module, (torch.ones(2, 4),), "inductor")


@functools.lru_cache(maxsize=None)
def warning_once(self, message):
    """As libraries add it to loggers."""
    self.warning(message)


def tells(y):
    LOGGER.warning("logged")
    logging.info("logged")
    LOGGER.warning_once("once")
    ADAPTER.warning("adapted")
    if LOGGER.isEnabledFor(logging.DEBUG):
        LOGGER.debug("debug")
    warnings.warn("warned", stacklevel=1)
    print("printed")
    return y


def test_messages_cut_no_graph(monkeypatch):
    monkeypatch.setattr(logging.Logger, "warning_once", warning_once, raising=False)
    config = torch._dynamo.config
    before = set(config.ignore_logging_functions)
    module, x = Layer(tells), torch.ones(2, 4)
    mt.compile(module, mode="eager")(x).sum().backward()
    found = module.layer.weight.grad.clone()
    module.zero_grad()
    module.layer(x).sum().backward()
    assert torch.equal(found, module.layer.weight.grad)
    assert mt.plan(module, (x,), "100%", mode="eager").total_bytes
    assert before == config.ignore_logging_functions


class Recurrent(nn.Module):
    """A recurrent layer and what comes behind it."""

    def __init__(self, kind, **options):
        super().__init__()
        self.layer = kind(8, 8, **options)
        self.behind = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())

    def forward(self, x):
        return self.behind(self.layer(x)[0])


@pytest.mark.parametrize("kind, options", [
    (nn.LSTM, {"batch_first": True}), (nn.GRU, {}), (nn.RNN, {})])
def test_recurrent_layers_keep_a_budget(kind, options):
    torch.manual_seed(0)
    module, x = Recurrent(kind, **options), torch.randn(3, 3, 8)
    compiled = mt.compile(module, budget="95%", mode="eager")
    enabled = torch._C._get_mkldnn_enabled(), torch._dynamo.config.allow_rnn
    found = mt.measure(compiled, (x,), steps=1)
    assert enabled == (torch._C._get_mkldnn_enabled(), torch._dynamo.config.allow_rnn)
    plan, = mt.plans(compiled)
    assert plan.schedule.recomputed()
    assert found.total_bytes <= plan.total_bytes <= plan.budget_bytes
    mt.verify(compiled, module, (x,)).check()
    module.zero_grad()
    compiled(x).sum().backward()
    gradients = [parameter.grad.clone() for parameter in module.parameters()]
    module.zero_grad()
    module(x).sum().backward()
    for gradient, parameter in zip(gradients, module.parameters()):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-5)


def test_inductor_trains_an_lstm():
    torch.manual_seed(0)
    module, x = nn.LSTM(4, 4), torch.randn(2, 3, 4)
    mt.compile(module)(x)[0].sum().backward()
    gradients = [parameter.grad.clone() for parameter in module.parameters()]
    module.zero_grad()
    module(x)[0].sum().backward()
    for gradient, parameter in zip(gradients, module.parameters()):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-5)


def test_sizes_are_numbers_whatever_was_traced_before():
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
    for batch in (4, 16, 6):
        graph = traced(module, (torch.randn(batch, 8),), Request(unplanned=True))
        assert not graph.captured.dynamic
