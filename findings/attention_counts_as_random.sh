#!/usr/bin/env bash
# PyTorch 2.13.0: on a CPU attention without dropout counts as a random operator when compiled.
#
# Expected: a checkpointed block of deterministic operators, compiled, keeps its input for backward.
# Happens: scaled_dot_product_attention becomes an operator that carries the tag of random ones
# whatever its dropout_p is. The compiler therefore stores the generator's state in forward and puts
# it back in backward: each attention adds 5056 bytes to what is kept. The same attention in plain
# operators does not; nor does it in 2.15.0.
#
# Seen:
#     tags: nondeterministic_seeded, pt2_compliant_tag
#     plain operators  kept: float32 (8, 2, 64, 16)
#     attention        kept: float32 (8, 2, 64, 16), uint8 (5056,)
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
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint


def plain_operators(x):
    return (torch.softmax(x @ x.mT / 4, -1) @ x).sin()


def attention(x):
    return scaled_dot_product_attention(x, x, x).sin()


def kept(block):
    found = []

    def note(tensor):
        found.append(f"{str(tensor.dtype)[6:]} {tuple(tensor.shape)}")
        return tensor

    def run(x):
        return checkpoint(block, x, use_reentrant=False).sum()

    x = torch.randn(8, 2, 64, 16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        torch.compile(run, backend="aot_eager_decomp_partition")(x).backward()
    return ", ".join(found)


tags = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default.tags
print("tags:", ", ".join(sorted(tag.name for tag in tags)))
plain, fused = kept(plain_operators), kept(attention)
print(f"plain operators  kept: {plain}")
print(f"attention        kept: {fused}")
if "uint8" in plain or "uint8 (5056,)" not in fused:
    sys.exit("changed: compiled attention without dropout no longer stores a generator's state")
PROGRAM
