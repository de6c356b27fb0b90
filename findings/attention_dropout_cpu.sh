#!/usr/bin/env bash
# PyTorch 2.13.0: on a CPU dropout makes scaled_dot_product_attention quadratic in memory again.
#
# Expected: the fused attention keeps the queries, keys, values, its result and a number a row;
# dropout_p=0.1 adds at most the state of a random generator, as it does in the fused kernels of
# GPUs.
# Happens: the CPU's fused kernel has no dropout. With any dropout_p above zero the call becomes
# products and a softmax, of which three matrices of length by length are kept for backward.
#
# Seen:
#     length  512  dropout 0.0     133120 bytes  dropout 0.1    3244032 bytes
#     length 2048  dropout 0.0     532480 bytes  dropout 0.1   50724864 bytes
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
from torch.nn.functional import scaled_dot_product_attention


def kept_bytes(length, dropout):
    storages = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    q, k, v = (torch.randn(1, 1, length, 16, requires_grad=True) for _ in range(3))
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = scaled_dot_product_attention(q, k, v, dropout_p=dropout)
    del result
    return sum(storages.values())


kept = {(n, p): kept_bytes(n, p) for n in (512, 2048) for p in (0.0, 0.1)}
for n in (512, 2048):
    print(f"length {n:4}  dropout 0.0 {kept[n, 0.0]:10} bytes  dropout 0.1 {kept[n, 0.1]:10} bytes")
if kept[2048, 0.0] > 5 * kept[512, 0.0] or kept[2048, 0.1] < 3 * 2048 * 2048 * 4:
    sys.exit("changed: attention with dropout no longer keeps three square matrices on a CPU")
PROGRAM
