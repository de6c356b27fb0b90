"""What eager steps call: as much as the module does, as fast as that can be called."""
from __future__ import annotations

import copy
from collections import Counter

import pytest
import torch
import torch.nn as nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch_nets import Convolutions, images, same, trained

import memonger.torch as mt
from memonger.torch.rewrite import batch_norm
from memonger.torch.rewrite.eager import Program, runner


class Operators(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count[str(func)] += 1
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


def test_a_step_makes_no_view_that_shows_what_is_there(monkeypatch):
    torch.manual_seed(0)
    module, x = nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)]), torch.randn(2, 3, 8)
    own, run = Operators(), Program.run
    with own:
        module(x).square().mean().backward()
    ours = Operators()

    def counted(program, args):
        with ours:
            return run(program, args)
    monkeypatch.setattr(Program, "run", counted)
    mt.compile(module, mode="eager")(x).square().mean().backward()
    assert ours.count["aten.mm.default"] == own.count["aten.mm.default"] == 7
    assert ours.count["aten.detach.default"] <= own.count["aten.detach.default"]
    assert ours.count["aten.t.default"] <= own.count["aten.t.default"] / 2


def test_results_that_are_views_stay_results_of_their_own():
    def both(x):
        y = x + 1
        return y.t().t(), y.detach(), x.t().t()

    x = torch.randn(2, 3)
    results = runner(make_fx(both, tracing_mode="fake")(x))([x])
    assert same(results, both(x))
    assert len({id(result) for result in (*results, x)}) == 4


@torch.library.custom_op("memonger_tests::shifted", mutates_args=())
def shifted(x: torch.Tensor) -> torch.Tensor:
    return x + torch.ones_like(x)


@shifted.register_fake
def _(x):
    return torch.empty_like(x)


def test_modes_of_functions_see_operators_of_libraries_alone():
    x = torch.randn(3, 3)
    program = Program(make_fx(lambda x: shifted(x.mm(x)).view(9), tracing_mode="fake")(x))
    with Functions() as seen:
        result = program.run([x])
    assert torch.equal(result, (x.mm(x) + 1).view(9))
    assert seen.names == ["shifted.default"]


def test_an_argument_of_any_form_reaches_its_operator():
    def everything(x):
        cut = torch.ops.aten.index.Tensor(x, [None, torch.tensor([1, 0])])
        return (torch.cat([cut, x], 1), x.sum([0, 1], keepdim=True, dtype=torch.float64),
                x.div(3), x.clamp(min=float("-inf"), max=0.5), torch.arange(3, device=x.device))

    x = torch.randn(2, 2)
    assert same(runner(make_fx(everything, tracing_mode="fake")(x))([x]), everything(x))


@pytest.mark.parametrize("budget", [None, "70%"])
def test_where_cudnn_serves_a_batch_norm_an_operator_chooses(budget, monkeypatch):
    monkeypatch.setattr(batch_norm, "cudnn_serves", lambda given, epsilon: None not in given)
    module, x = Convolutions(), images()
    twin = copy.deepcopy(module)
    step = mt.compile(module, budget, "eager", costs="cpu")
    numbers = trained(step, module, x)
    [plan] = mt.plans(step)
    kinds = {op.kind for op in plan.graph.ops}
    assert {"aten._batch_norm_with_update_functional.default",
            "aten.batch_norm_backward.default"} <= kinds
    assert not {"aten._native_batch_norm_legit_functional.default",
                "aten.native_batch_norm_backward.default"} & kinds
    again = {plan.graph.ops[op].kind for op in plan.schedule.recomputed()}
    assert ("aten._batch_norm_with_update_functional.default" in again) == (budget is not None)
    assert same(numbers, trained(twin, twin, x))
