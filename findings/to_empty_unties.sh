#!/usr/bin/env bash
# PyTorch 2.13.0: a module that leaves the meta device loses its tied weights.
#
# Expected: a weight that two layers share is still one weight after module.to_empty(device="cpu"),
# as it is after module.to(torch.float64): the usual way to build a large network without memory
# first changes where its parameters lie, not how many there are.
# Happens: to() fills the Parameter that both layers have; where the device changes from or to meta,
# each layer gets a new Parameter of its own. An embedding and the output layer tied to it are two
# matrices from then on, with two gradients and two states of the optimizer, and train apart.
#
# Seen:
#     parameters on meta      1, bytes 160000
#     after to_empty          2, bytes 320000
#     after to(torch.float64) 1
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    torch==2.13.0
cd "$folder"
TMPDIR=$folder HF_HOME=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore - <<'PROGRAM'
import sys

import torch
from torch import nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(1000, 40)
        self.scores = nn.Linear(40, 1000, bias=False)
        self.scores.weight = self.words.weight


def sizes(module):
    return [parameter.nbytes for parameter in module.parameters()]


with torch.device("meta"):
    module = Tied()
before = sizes(module)
after = sizes(module.to_empty(device="cpu"))
wide = sizes(Tied().to(torch.float64))
print(f"parameters on meta      {len(before)}, bytes {sum(before)}")
print(f"after to_empty          {len(after)}, bytes {sum(after)}")
print(f"after to(torch.float64) {len(wide)}")
if [len(before), len(after), len(wide)] != [1, 2, 1]:
    sys.exit("changed: to_empty no longer gives each tied layer a weight of its own")
PROGRAM
