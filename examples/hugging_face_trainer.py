"""Trains a small GPT-2 with Hugging Face's Trainer under a budget, beside one without.

    python examples/hugging_face_trainer.py [--budget 70%] [--steps 6] [--out FOLDER]

Nothing is downloaded: the model's weights and the words are random. It prints the plans, whether
losses and parameters equal those without a budget, and whether a saved model generates the same.
"""
from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any, Dict, List, Optional, Tuple

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from memonger.torch.engines.hugging_face import MemoryBudgetCallback

WORDS = 97


def sentences(count: int) -> List[Dict[str, torch.Tensor]]:
    """Sentences of the same length; the last batch of an epoch is smaller than the others."""
    torch.manual_seed(1)
    return [{"input_ids": words, "labels": words}
            for words in torch.randint(0, WORDS, (count, 48))]


def train(folder: str, steps: int, budget: Optional[str]) -> Tuple[Any, List[float], List[Any]]:
    """The trained model, its losses, and its plans."""
    set_seed(0)
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=WORDS, n_positions=64, n_embd=64, n_layer=4, n_head=4))
    planned = [] if budget is None else [MemoryBudgetCallback(budget, mode="eager")]
    trainer = Trainer(
        model=model, train_dataset=sentences(21), callbacks=planned,
        args=TrainingArguments(folder, max_steps=steps, per_device_train_batch_size=8,
                               logging_steps=1, report_to=[], save_strategy="no",
                               disable_tqdm=True, use_cpu=True))
    trainer.train()
    trainer.save_model(folder)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return model, losses, planned[0].plans if planned else []


def main(argv: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--budget", default="70%")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--out", default=None)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as own:
        folder = args.out or own
        plain, losses, _ = train(os.path.join(folder, "plain"), args.steps, None)
        model, same, plans = train(os.path.join(folder, "planned"), args.steps, args.budget)
        again = GPT2LMHeadModel.from_pretrained(os.path.join(folder, "planned"))
        words = torch.arange(5)[None]
        made = [m.eval().generate(words, max_new_tokens=5, do_sample=False, pad_token_id=0)
                for m in (model, again)]
    for plan in plans:
        print(repr(plan))
    print("losses equal:", losses == same)
    print("parameters equal:", all(map(torch.equal, plain.parameters(), model.parameters())))
    print("generates the same when loaded:", torch.equal(*made))


if __name__ == "__main__":
    main()
