#!/usr/bin/env bash
# Lightning 2.6.6: each forward pass but the first runs beside all gradients of the batch before.
#
# Expected: with automatic optimization gradients are dropped behind the optimizer's step, as a loop
# by hand has it that ends with zero_grad(). So activations grow in their place.
# Happens: they are dropped between the next batch's forward and backward pass. At the end of forward
# parameters, gradients, the optimizer's state and all activations are there at once, and where
# activations are most of a step its peak is higher by the gradients than that of the loop by hand.
#
# Seen (16777216 bytes of parameters, SGD; a batch's activations take twice as much):
#     bytes of gradients when training_step begins: 0 16777216 16777216
#     peak beside parameters: Lightning 52428816 bytes, by hand 41943048
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    torch==2.13.0 lightning==2.6.6 numpy==2.4.6
cd "$folder"
TMPDIR=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore - 2>log.txt <<'PROGRAM' || { cat log.txt; exit 1; }
import logging
import sys

import lightning.pytorch as pl
import torch
from torch.profiler import profile

WIDTH, LAYERS, ROWS = 512, 16, 1024
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*[
            torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])
        self.found = []

    def training_step(self, x, batch_idx=0):
        self.found.append(sum(p.grad.nbytes for p in self.parameters() if p.grad is not None))
        return self.layers(x).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def by_hand(module, data):
    optimizer = module.configure_optimizers()
    for x in data:
        module.training_step(x).backward()
        optimizer.step()
        optimizer.zero_grad()


def by_lightning(module, data):
    pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False,
               enable_checkpointing=False, enable_model_summary=False).fit(
        module, torch.utils.data.DataLoader(data, batch_size=None))


def peak_bytes(train):
    module = Module()
    data = [torch.randn(ROWS, WIDTH) for _ in range(3)]
    with profile(profile_memory=True) as profiled:
        train(module, data)
    held = peak = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return module.found, peak


found, peak = peak_bytes(by_lightning)
other, least = peak_bytes(by_hand)
parameter_bytes = 4 * WIDTH * WIDTH * LAYERS
print("bytes of gradients when training_step begins:", *found)
print(f"peak beside parameters: Lightning {peak} bytes, by hand {least}")
if found != [0, parameter_bytes, parameter_bytes] or any(other) or peak < least:
    sys.exit("changed: when Lightning drops gradients")
PROGRAM
