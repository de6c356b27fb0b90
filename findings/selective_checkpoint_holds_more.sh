#!/usr/bin/env bash
# PyTorch 2.13.0: selective checkpointing can hold more memory than no checkpointing at all.
#
# Expected: a policy that saves the matrix products and recomputes the rest lies between plain
# training, which keeps every activation, and checkpoint(), which keeps only the block's input.
# Happens: the policy stores every result that it names, whether or not anything that is kept
# already says the same. In a block of linear layers and ReLUs plain training keeps the four results
# of ReLU, which serve ReLU and the next layer alike, and the last of them is the block's own
# result. With the policy the four products are kept, and the block's result beside them.
#
# Seen:
#     held after forward, in tensors of 524288 bytes
#     no checkpoint         4.00
#     checkpoint            1.01
#     products saved        5.01
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    torch==2.13.0 numpy==2.4.6
cd "$folder"
TMPDIR=$folder HF_HOME=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore - <<'PROGRAM'
import sys
from functools import partial

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils import checkpoint as ckpt

layers = [torch.nn.Linear(256, 256, bias=False) for _ in range(4)]
x = torch.randn(512, 256, requires_grad=True)


def block(x):
    for layer in layers:
        x = torch.relu(layer(x))
    return x


def save_products(context, op, *args, **kwargs):
    if op is torch.ops.aten.mm.default:
        return ckpt.CheckpointPolicy.MUST_SAVE
    return ckpt.CheckpointPolicy.PREFER_RECOMPUTE


def held_tensors(forward):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        result = forward()
    held = sum(event.self_cpu_memory_usage for event in prof.key_averages())
    del result
    return held / x.nbytes


contexts = partial(ckpt.create_selective_checkpoint_contexts, save_products)
plain = held_tensors(lambda: block(x))
whole = held_tensors(lambda: ckpt.checkpoint(block, x, use_reentrant=False))
chosen = held_tensors(
    lambda: ckpt.checkpoint(block, x, use_reentrant=False, context_fn=contexts)
)
print(f"held after forward, in tensors of {x.nbytes} bytes")
print(f"no checkpoint         {plain:.2f}")
print(f"checkpoint            {whole:.2f}")
print(f"products saved        {chosen:.2f}")
if not whole < plain < chosen:
    sys.exit("changed: saving the products no longer holds more than no checkpoint")
PROGRAM
