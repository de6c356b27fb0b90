"""What ``mt.compile`` gives is the module in all but how its calls run."""
from __future__ import annotations

import abc
import copy
import inspect
import io
import pickle

import pytest
import torch
import torch.nn as nn
from torch_nets import Convolutions, same, trained

import memonger.torch as mt
from memonger.errors import InfeasibleBudget, InputError, PlanMismatch

BUDGET = "80%"


class Named(nn.Module, abc.ABC):
    """A module with a metaclass, arguments with names, and a list of its subclasses."""

    subclasses = []

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        Named.subclasses.append(cls)

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU())
                                    for _ in range(4)])

    def forward(self, input_ids, scale=1.0):
        return self.body(input_ids * scale).square().mean()

    def predict(self, x):
        return self(x) * 0


def chain():
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU())
                           for _ in range(4)])


def rows(batch=64):
    torch.manual_seed(1)
    return (torch.randn(batch, 16),)


def summed(output):
    return output.square().mean()


def pickled(module):
    return pickle.loads(pickle.dumps(module))


def saved(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("in_place", [False, True], ids=["twin", "in place"])
@pytest.mark.parametrize("make, inputs, loss", [
    (Named, rows(), None), (chain, rows(), summed)], ids=["own class", "torch's class"])
def test_names_types_and_signatures_are_the_modules(make, inputs, loss, in_place):
    module = make()
    plain = copy.deepcopy(module)
    fast = mt.compile(module, BUDGET, "eager", in_place=in_place)
    assert same(trained(fast, fast, inputs, loss=loss), trained(plain, plain, inputs, loss=loss))
    [plan] = mt.plans(fast)
    assert plan.schedule.recomputed()
    assert isinstance(fast, type(plain)) and (fast is module) == in_place
    assert repr(fast) == repr(plain)
    assert list(fast.state_dict()) == list(plain.state_dict())
    for names in ("named_parameters", "named_buffers", "named_modules"):
        assert [name for name, _ in getattr(fast, names)()] == \
            [name for name, _ in getattr(plain, names)()]
    for forward in (lambda m: m.forward, lambda m: type(m).forward):
        assert inspect.signature(forward(fast)) == inspect.signature(forward(plain))
    # One graph, so what is planned for one form can run in the other.
    assert mt.plan(fast, inputs, BUDGET, "eager").graph.fingerprint == plan.graph.fingerprint
    assert mt.verify(fast, module, inputs).identical


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled, saved])
def test_a_copy_asks_for_the_same_and_plans_at_its_first_call(copied):
    module, inputs = chain(), rows()
    fast = mt.compile(module, BUDGET, "eager")
    trained(fast, fast, inputs, loss=summed)
    twin, plain = copied(fast), copy.deepcopy(module)
    assert mt.plans(twin) == [] and isinstance(twin, nn.Sequential)
    assert same(list(twin.parameters()), list(plain.parameters()))
    assert same(trained(twin, twin, inputs, loss=summed),
                trained(plain, plain, inputs, loss=summed))
    assert len(mt.plans(twin)) == len(mt.plans(fast)) == 1
    assert mt.plans(twin)[0].options == mt.plans(fast)[0].options
    assert mt.plans(twin)[0].budget_bytes == mt.plans(fast)[0].budget_bytes


def test_a_deep_copy_keeps_what_is_shared_with_the_module():
    module = chain()
    fast, inner = copy.deepcopy((mt.compile(module, BUDGET, "eager"), module))
    assert [id(p) for p in fast.parameters()] == [id(p) for p in inner.parameters()]


@pytest.mark.parametrize("copied", [copy.deepcopy, saved])
def test_copies_of_a_module_in_place_are_plain_modules(copied):
    module, inputs = Named(), rows()
    mt.compile(module, BUDGET, "eager", in_place=True)
    trained(module, module, inputs)
    plain = copied(module)
    assert type(plain) is Named and same(list(plain.state_dict().values()),
                                                list(module.state_dict().values()))
    with pytest.raises(InputError, match="what memonger.torch.compile gave"):
        mt.plans(plain)
    assert same(trained(plain, plain, inputs, 1), trained(module, module, inputs, 1))


def test_checkpoints_with_and_without_the_names_of_torch_compile_are_loaded():
    source = Convolutions()
    old = torch.compile(source).state_dict()
    assert all(name.startswith("_orig_mod.") for name in old)
    for state in (old, source.state_dict()):
        names, metadata = list(state), dict(state._metadata)
        fast = mt.compile(Convolutions(), BUDGET, "eager")
        assert str(fast.load_state_dict(state)) == "<All keys matched successfully>"
        assert same(list(fast.state_dict().values()), list(source.state_dict().values()))
        assert list(state) == names and dict(state._metadata) == metadata
    with pytest.raises(RuntimeError, match="Unexpected key"):
        fast.load_state_dict({**old, "_orig_mod.more": torch.zeros(1)})


def test_what_is_set_on_one_is_set_on_the_other():
    module = Named()
    fast = mt.compile(module, BUDGET, "eager")
    fast.eval()
    fast.note = 3
    assert not module.training and module.note == 3
    module.train()
    assert fast.training and fast.predict(rows()[0]) == 0 and len(mt.plans(fast)) == 1
    assert Named.subclasses == []  # a registry of classes sees no other one
    calls = []
    fast.register_forward_hook(lambda *_: calls.append(1))
    fast(*rows(), scale=2.0)
    module(*rows())
    assert len(calls) == 2


def test_forward_is_planned_and_can_be_set():
    module, inputs = Named(), rows()
    fast = mt.compile(module, BUDGET, "eager")
    fast.forward(*inputs).backward()
    assert len(mt.plans(fast)) == 1
    inner = fast.forward
    fast.forward = lambda *args: inner(*args) + 1  # as trainers do to cast what it gives
    assert fast(*inputs) == module(*inputs) + 1


def test_a_twin_is_part_of_a_larger_module():
    module, inputs = chain(), rows()
    whole = nn.Sequential(mt.compile(module, BUDGET, "eager"), nn.Linear(16, 2))
    assert list(whole.state_dict())[0] == "0.0.0.weight"
    plain = nn.Sequential(copy.deepcopy(module), copy.deepcopy(whole[1]))
    numbers = trained(plain, copy.deepcopy(plain), inputs, 1, summed)
    assert same(trained(whole, copy.deepcopy(plain), inputs, 1, summed), numbers)
    assert len(mt.plans(whole[0])) == 1
    # What is planned as a whole has one plan.
    assert mt.plan(whole, inputs, BUDGET, "eager").total_bytes == \
        mt.plan(plain, inputs, BUDGET, "eager").total_bytes
    fast = mt.compile(whole, BUDGET, "eager")
    assert same(trained(fast, copy.deepcopy(plain), inputs, 1, summed), numbers)
    assert len(mt.plans(fast)) == len(mt.plans(whole[0])) == 1


def test_a_second_compilation_in_place_replaces_the_plan():
    module, inputs = chain(), rows()
    for budget in ("90%", BUDGET):
        assert mt.compile(module, budget, "eager", in_place=True) is module
        summed(module(*inputs)).backward()
        module.zero_grad()  # gradients that exist would count
        assert mt.plans(module)[0].total_bytes == \
            mt.plan(module, inputs, budget, "eager").total_bytes
    twin = mt.compile(module, "90%", "eager")
    assert twin is not module and mt.compile(twin, BUDGET, "eager", in_place=True) is twin
    summed(twin(*inputs)).backward()
    assert mt.plans(twin)[0].total_bytes == mt.plans(module)[0].total_bytes


def test_a_function_is_not_compiled_in_place():
    weight = torch.randn(16, 16, requires_grad=True)

    def step(x, scale=1.0):
        return (x @ weight).relu().square().mean() * scale
    with pytest.raises(InputError, match="in_place"):
        mt.compile(step, BUDGET, "eager", in_place=True)
    fast = mt.compile(step, mode="eager")
    assert fast(*rows(), scale=2.0) == step(*rows(), scale=2.0)
    assert inspect.signature(fast) == inspect.signature(step)
    assert mt.compile(lambda x: fast(x) * 2, mode="eager")(*rows()) == step(*rows(), scale=2.0)


@pytest.mark.parametrize("in_place", [False, True], ids=["twin", "in place"])
def test_errors_are_in_plain_words_in_both_forms(in_place):
    class Breaks(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x):
            x = self.layer(x)
            torch._dynamo.graph_break()
            return self.layer(x)
    with pytest.raises(InputError, match="as one graph"):
        mt.compile(Breaks(), BUDGET, "eager", in_place=in_place, strict=True)(*rows())
    with pytest.raises(InfeasibleBudget):
        mt.compile(chain(), "1%", "eager", in_place=in_place)(*rows())


@pytest.mark.parametrize("in_place", [False, True], ids=["twin", "in place"])
def test_a_lazy_module_takes_its_shape_at_the_first_call(in_place):
    fast = mt.compile(nn.LazyLinear(4), mode="eager", in_place=in_place)
    assert fast(*rows()).shape == (64, 4)
    assert [p.shape for p in fast.parameters()] == [(4, 16), (4,)]


def test_a_plan_is_taken_from_its_file(tmp_path):
    module, inputs = chain(), rows()
    plan = mt.plan(module, inputs, BUDGET, "eager")
    path = tmp_path / "plan.json"
    plan.save(str(path))
    for given in (path, str(path), plan):
        fast = mt.compile(chain(), plan=given)
        summed(fast(*inputs)).backward()
        assert mt.plans(fast)[0].schedule == plan.schedule
    with pytest.raises(PlanMismatch):
        mt.compile(torch.nn.Sequential(*chain()[:2]), plan=path)(*inputs)
    with pytest.raises(InputError, match="no-such-file"):
        mt.compile(chain(), plan="no-such-file.json")
    with pytest.raises(InputError, match="plan must be"):
        mt.compile(chain(), plan=3)
