#!/usr/bin/env bash
# accelerate 1.15.0: under bfloat16 a prepared model's outputs are copied to float32.
#
# Expected: Accelerator(mixed_precision="bf16") runs the model under torch.autocast, and its logits
# are bfloat16, as under torch.autocast itself.
# Happens: prepare() also wraps forward so that every floating tensor of the outputs is converted to
# float32. The logits exist twice, at two and at four bytes an element, and so does their gradient:
# for many tokens by a large vocabulary the step's largest tensor takes three times the room.
#
# Seen:
#     torch.autocast   torch.bfloat16 8192000 bytes, AddmmBackward0
#     prepared model   torch.float32 16384000 bytes, ToCopyBackward0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    accelerate==1.15.0 torch==2.13.0 numpy==2.4.6
cd "$folder"
TMPDIR=$folder HF_HOME=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore - <<'PROGRAM'
import sys

import torch
from accelerate import Accelerator


def describe(logits):
    return f"{logits.dtype} {logits.nbytes} bytes, {type(logits.grad_fn).__name__}"


model = torch.nn.Linear(8, 32000)
tokens = torch.ones(128, 8)
with torch.autocast("cpu", torch.bfloat16):
    plain = model(tokens)
prepared = Accelerator(cpu=True, mixed_precision="bf16").prepare(model)(tokens)
print(f"torch.autocast   {describe(plain)}")
print(f"prepared model   {describe(prepared)}")
if plain.dtype is not torch.bfloat16 or prepared.dtype is not torch.float32:
    sys.exit("changed: a prepared model's outputs are no longer converted to float32")
PROGRAM
