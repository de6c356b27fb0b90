#!/usr/bin/env bash
# PyTorch 2.13.0: x.amax(-1) keeps all of x for backward, x.max(-1).values a number a row.
#
# Expected: amax, which returns no indices, is the lighter of two ways to the same maxima.
# Happens: max keeps the indices that it found, eight bytes a row. amax found none, so backward
# compares: it needs the input and the result again. A global max-pool by amax holds its whole
# feature map. Gradients differ as well: amax shares them among equal maxima, max gives them to one.
#
# Seen:
#     input 8388608 bytes
#     max   kept 16384 bytes, gradient of a tie [0.0, 1.0, 0.0]
#     amax  kept 8396800 bytes, gradient of a tie [0.0, 0.5, 0.5]
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


def kept_bytes(reduce):
    storages = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = reduce(x)
    del result
    return sum(storages.values())


def tied_gradient(reduce):
    tie = torch.tensor([0.0, 1.0, 1.0], requires_grad=True)
    reduce(tie).backward()
    return tie.grad.tolist()


x = torch.randn(2048, 1024, requires_grad=True)
reductions = {"max": lambda x: x.max(-1).values, "amax": lambda x: x.amax(-1)}
kept = {name: kept_bytes(reduce) for name, reduce in reductions.items()}
print(f"input {x.nbytes} bytes")
for name, reduce in reductions.items():
    print(f"{name:5} kept {kept[name]} bytes, gradient of a tie {tied_gradient(reduce)}")
if kept["max"] > x.nbytes / 100 or kept["amax"] < x.nbytes:
    sys.exit("changed: amax no longer keeps its input, or max does")
PROGRAM
