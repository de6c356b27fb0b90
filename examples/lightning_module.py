"""Trains a LightningModule under a budget, beside one without.

    python examples/lightning_module.py [--budget 70%] [--steps 6] [--out FOLDER]

It prints the plans, whether losses and parameters equal those without a budget, and whether the
checkpoint loads into a plain module.
"""
from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any, List, Optional, Tuple

import lightning.pytorch as lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from memonger.torch.engines.lightning import MemoryBudgetCallback


class Classifier(lightning.LightningModule):
    """A residual network with dropout that tells ten kinds of vectors apart."""

    def __init__(self, layers: int = 6) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.ModuleList([nn.Sequential(
            nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64))
            for _ in range(layers)])
        self.head = nn.Linear(64, 10)
        self.losses: List[float] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, kinds = batch
        scores = self(x)
        loss = nn.functional.cross_entropy(scores, kinds)
        self.log("loss", loss, prog_bar=True)
        self.log_dict({"accuracy": (scores.argmax(1) == kinds).float().mean()})
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, kinds = batch
        self.log("validation_loss", nn.functional.cross_entropy(self(x), kinds))

    def on_train_batch_end(self, *_: Any) -> None:
        self.losses.append(float(self.trainer.callback_metrics["loss"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def train(folder: str, steps: int, budget: Optional[str]) -> Tuple[Classifier, str, Any]:
    """The trained module, its checkpoint, and its plans. The last batch of an epoch is smaller."""
    lightning.seed_everything(0, verbose=False)
    module = Classifier()
    data = TensorDataset(torch.randn(640, 64), torch.randint(0, 10, (640,)))
    planned = [] if budget is None else [MemoryBudgetCallback(budget, mode="eager")]
    trainer = lightning.Trainer(
        max_steps=steps, callbacks=planned, accelerator="cpu", logger=False,
        enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
        default_root_dir=folder)
    trainer.fit(module, DataLoader(data, batch_size=256), DataLoader(data, batch_size=256))
    path = os.path.join(folder, "module.ckpt")
    trainer.save_checkpoint(path)
    return module, path, planned[0].plans if planned else []


def main(argv: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--budget", default="70%")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--out", default=None)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as own:
        folder = args.out or own
        plain, _, _ = train(os.path.join(folder, "plain"), args.steps, None)
        module, path, plans = train(os.path.join(folder, "planned"), args.steps, args.budget)
        again = Classifier.load_from_checkpoint(path)
    for plan in plans:
        print(repr(plan))
    print("losses equal:", plain.losses == module.losses)
    print("parameters equal:", all(map(torch.equal, plain.parameters(), module.parameters())))
    print("the checkpoint loads:", all(map(torch.equal, again.parameters(), module.parameters())))


if __name__ == "__main__":
    main()
