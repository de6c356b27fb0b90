#!/usr/bin/env bash
# PyTorch 2.13.0: compiled, a buffer's clone is taken after the buffer was updated; gradients
# differ.
# Inductor needs a C++ compiler.
#
# Expected: a module that clones a buffer, computes with the clone and then updates the buffer in
# place has the same gradient with torch.compile as without: the clone is there for that.
# Happens: a copy is cheap, so the partitioner does not save it but the buffer, and copies again in
# the backward pass. By then forward has updated the buffer. With scale 1, doubled after its use,
# and x = 0.5 the gradient is 2 cos(2 x) in place of cos(x).
#
# Seen:
#     loss      eager 0.4794  compiled 0.4794
#     gradient  eager 0.8776  compiled 1.0806
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    torch==2.13.0 numpy==2.4.6
cd "$folder"
TMPDIR=$folder HF_HOME=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore - <<'PROGRAM'
import sys

import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        scale = self.scale.clone()
        loss = (x * scale).sin().sum()
        self.scale.mul_(2)
        return loss


def loss_and_gradient(module):
    x = torch.full((1,), 0.5, requires_grad=True)
    loss = module(x)
    loss.backward()
    return loss.item(), x.grad.item()


loss, gradient = loss_and_gradient(Scaled())
compiled_loss, compiled_gradient = loss_and_gradient(torch.compile(Scaled()))
print(f"loss      eager {loss:.4f}  compiled {compiled_loss:.4f}")
print(f"gradient  eager {gradient:.4f}  compiled {compiled_gradient:.4f}")
if abs(compiled_gradient - gradient) < 0.1:
    sys.exit("changed: compiled, a clone of a buffer is now the one that forward took")
PROGRAM
