"""Trainers of others, the real packages, under a budget."""
from __future__ import annotations

import copy
import importlib.util
from pathlib import Path

import pytest
import torch
from torch_nets import Attention, same, sentences

import memonger.torch as mt
from memonger.errors import InputError
from memonger.torch.pytorch.allocations import peak_bytes

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def lightning():
    """The package, where it is installed."""
    return pytest.importorskip("lightning.pytorch")


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
def test_a_trainer_that_accumulates_gradients_keeps_its_budget(tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    from memonger.torch.engines.hugging_face import MemoryBudgetCallback
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=97, n_positions=64, n_embd=64, n_layer=3, n_head=4))
    callback = MemoryBudgetCallback("80%", mode="eager")
    trainer = Trainer(
        model=model, train_dataset=example("hugging_face_trainer").sentences(32),
        callbacks=[callback], args=TrainingArguments(
            str(tmp_path), max_steps=2, per_device_train_batch_size=8, report_to=[],
            gradient_accumulation_steps=2, save_strategy="no", disable_tqdm=True, use_cpu=True))
    held_bytes = sum(p.nbytes for p in model.parameters())
    taken_bytes = held_bytes + peak_bytes(trainer.train, torch.device("cpu"))
    [plan] = callback.plans
    assert plan.fixed_bytes["gradients"] == held_bytes and plan.schedule.recomputed()
    assert taken_bytes <= 1.01 * plan.budget_bytes  # the trainer's own tensors, as of losses


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision,accumulates", [("no", 1), ("bf16", 1), ("no", 2)])
def test_a_loop_with_accelerate_trains_as_without_a_budget(precision, accumulates):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    from memonger.torch.engines.accelerate import prepare
    AcceleratorState._reset_state(reset_partial_state=True)  # one a process
    accelerator = Accelerator(mixed_precision=precision, cpu=True,
                              gradient_accumulation_steps=accumulates)
    module, x = Attention(), sentences()
    twin = copy.deepcopy(module)

    def trained(model, prepared):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        model, optimizer = prepared(model, optimizer)
        torch.manual_seed(5)
        losses = []
        for _ in range(4):
            with accelerator.accumulate(model):
                loss = model(*x)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
        return losses + [p.detach() for p in model.parameters()]
    # Under autocast one graph rounds otherwise than the module, cast by cast.
    plain = trained(twin, accelerator.prepare if precision == "no" else lambda *given: prepare(
        accelerator, *given, budget=None, mode="eager"))
    planned = trained(module, lambda *given: prepare(accelerator, *given, budget="85%",
                                                     mode="eager"))
    [plan] = mt.plans(module)
    assert plan.schedule.recomputed() and ("gradients" in plan.fixed_bytes) == (accumulates > 1)
    assert same(planned, plain)


@pytest.mark.filterwarnings("ignore")
def test_a_lightning_modules_step_is_planned_as_a_whole(tmp_path, capsys):
    """Loss, logs and all; its last batch of an epoch is smaller, and checkpoints are plain."""
    lightning()
    example("lightning_module").main(["--steps", "4", "--out", str(tmp_path)])
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line.endswith(": True")] == [
        "losses equal: True", "parameters equal: True", "the checkpoint loads: True"]
    saved = torch.load(tmp_path / "planned" / "module.ckpt", weights_only=False)
    assert "layers.0.1.weight" in saved["state_dict"] and not any(
        "_orig_mod" in name or "memonger" in name for name in map(str, saved))


@pytest.mark.filterwarnings("ignore")
def test_the_lightning_callback_counts_the_optimizer_and_leaves_the_module(tmp_path):
    lightning()
    script = example("lightning_module")
    module, _, plans = script.train(str(tmp_path), 4, "75%")
    held = sum(p.numel() * p.element_size() for p in module.parameters())
    assert len(plans) >= 2  # of two sizes
    assert all(plan.total_bytes <= plan.budget_bytes == plans[0].budget_bytes
               and 2 * held <= plan.fixed_bytes["optimizer"] < 2.1 * held
               and plan.fixed_bytes["gradients"] == held for plan in plans)
    assert plans[0].schedule.recomputed()
    assert not {"training_step", "log", "log_dict"} & set(vars(module))
    assert module.trainer.callback_metrics.keys() >= {"loss", "accuracy", "validation_loss"}


@pytest.mark.filterwarnings("ignore")
def test_a_step_that_runs_backward_itself_is_told_what_to_do(tmp_path):
    trainers = lightning()
    script = example("lightning_module")
    module = script.Classifier(1)
    module.automatic_optimization = False
    from memonger.torch.engines.lightning import MemoryBudgetCallback
    trainer = trainers.Trainer(
        max_steps=1, callbacks=[MemoryBudgetCallback("70%", mode="eager")], accelerator="cpu",
        logger=False, enable_progress_bar=False, enable_checkpointing=False,
        enable_model_summary=False, default_root_dir=str(tmp_path))
    data = torch.utils.data.TensorDataset(torch.randn(8, 64), torch.randint(0, 10, (8,)))
    with pytest.raises(InputError, match="in_place=True"):
        trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=8))


@pytest.mark.filterwarnings("ignore")
def test_sentences_of_many_lengths_keep_the_budget(tmp_path):
    """Default arguments of the Trainer, with a collator that pads; what was saved trains on."""
    from tokenizers import Tokenizer, models
    from transformers import (
        DataCollatorForSeq2Seq,
        GPT2Config,
        GPT2LMHeadModel,
        PreTrainedTokenizerFast,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    from memonger.torch.engines.hugging_face import MemoryBudgetCallback
    words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(
        {"<pad>": 0, "<unk>": 1}, unk_token="<unk>")), pad_token="<pad>", unk_token="<unk>")
    torch.manual_seed(3)
    data = [{"input_ids": ids, "labels": ids} for length in (40, 12, 33, 40, 21, 7, 28, 36)
            for ids in [torch.randint(0, 97, (length,)).tolist()]]

    def train(folder, budget, start=None):
        set_seed(0)
        model = GPT2LMHeadModel.from_pretrained(start) if start else GPT2LMHeadModel(GPT2Config(
            vocab_size=97, n_positions=64, n_embd=64, n_layer=3, n_head=4))
        callbacks = [MemoryBudgetCallback(budget, mode="eager")] if budget else []
        trainer = Trainer(
            model=model, train_dataset=data, callbacks=callbacks,
            data_collator=DataCollatorForSeq2Seq(words),
            args=TrainingArguments(str(folder), num_train_epochs=1, per_device_train_batch_size=2,
                                   report_to=[], disable_tqdm=True, use_cpu=True))
        trainer.train()
        trainer.save_model(str(folder))
        return model, callbacks[0].plans if budget else []
    plain, _ = train(tmp_path / "plain", None)
    model, plans = train(tmp_path / "planned", "80%")
    assert same(list(model.parameters()), list(plain.parameters()))
    assert len({plan.budget_bytes for plan in plans}) == 1
    assert all(plan.total_bytes <= plan.budget_bytes for plan in plans)
    again, plans = train(tmp_path / "again", "80%", tmp_path / "planned")
    assert plans and not same(list(model.parameters()), list(again.parameters()))
