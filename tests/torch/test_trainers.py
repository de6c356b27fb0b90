"""Trainers of others, the real packages, under a budget."""
from __future__ import annotations

import copy
import importlib.util
from pathlib import Path

import pytest
import torch
from torch_nets import Attention, same, sentences

import memonger.torch as mt

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / (name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")
def test_the_trainers_model_keeps_its_budget_and_numbers(tmp_path, capsys):
    """Its last batch of an epoch is smaller; the model is saved, loaded and generates."""
    script = example("hugging_face_trainer")
    script.main(["--steps", "4", "--out", str(tmp_path)])
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line.endswith(": True")] == [
        "losses equal: True", "parameters equal: True",
        "generates the same when loaded: True"]


@pytest.mark.filterwarnings("ignore")
def test_the_callback_counts_the_optimizer_and_tells_its_plans(tmp_path):
    script = example("hugging_face_trainer")
    model, _, plans = script.train(str(tmp_path), 4, "75%")
    held = sum(p.numel() * p.element_size() for p in model.parameters())
    assert len(plans) >= 2  # of two sizes
    assert all(plan.total_bytes <= plan.budget_bytes == plans[0].budget_bytes
               and 2 * held <= plan.fixed_bytes["optimizer"] < 2.1 * held for plan in plans)
    assert plans[0].schedule.recomputed()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_a_loop_with_accelerate_trains_as_without_a_budget(precision):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    from memonger.torch.engines.accelerate import prepare
    AcceleratorState._reset_state(reset_partial_state=True)  # one a process
    accelerator = Accelerator(mixed_precision=precision, cpu=True)
    module, x = Attention(), sentences()
    twin = copy.deepcopy(module)

    def trained(model, prepared):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        model, optimizer = prepared(model, optimizer)
        torch.manual_seed(5)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(*x)
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.detach())
        return losses + [p.detach() for p in model.parameters()]
    # Under autocast one graph rounds otherwise than the module, cast by cast.
    plain = trained(twin, accelerator.prepare if precision == "no" else lambda *given: prepare(
        accelerator, *given, budget=None, mode="eager"))
    planned = trained(module, lambda *given: prepare(accelerator, *given, budget="85%",
                                                     mode="eager"))
    assert mt.plans(module)[0].schedule.recomputed()
    assert same(planned, plain)
