#!/usr/bin/env bash
# PyTorch 2.13.0: where two kernels of compiled code read a dropout mask, Inductor keeps the random
# numbers that the mask is made of, four bytes for each element in place of one.
#
# Expected: the mask, a bool for each element, is written once and read twice.
# Happens: a drawn value is always a buffer, and a comparison with a threshold is cheap enough to be
# made in each kernel that reads it. So the float32 numbers stay until the last of them, also where a
# matrix product lies between, as in attention whose mask is made again for backward. Where the mask
# is an output, too, it is written, and the numbers never are.
#
# Seen (512 x 512, two matrix products with a mask in front of each):
#     mask read twice:      3145728 bytes at the peak
#     and given back, too:  2359296 bytes at the peak, the output of 262144 bytes among them
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    torch==2.13.0 numpy==2.4.6 setuptools==80.9.0
cd "$folder"
export TORCHINDUCTOR_CACHE_DIR=$folder/cache
TMPDIR=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore - 2>log.txt <<'PROGRAM' || { cat log.txt; exit 1; }
import sys

import torch
from torch.profiler import profile

SIZE = 512


def read_twice(x, w):
    mask = torch.rand_like(x) > 0.1
    return ((x * mask) @ w * mask) @ w


def given_back_too(x, w):
    mask = (torch.rand_like(x) > 0.1).clone()
    return ((x * mask) @ w * mask) @ w, mask


def peak_bytes(function):
    x, w = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    compiled = torch.compile(function)
    compiled(x, w)
    with profile(profile_memory=True) as profiled:
        compiled(x, w)
    held = peak = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


torch.set_num_threads(1)
twice, given_back = peak_bytes(read_twice), peak_bytes(given_back_too)
print(f"mask read twice:     {twice:8} bytes at the peak")
print(f"and given back, too: {given_back:8} bytes at the peak")
if twice < 12 * SIZE * SIZE or given_back > 10 * SIZE * SIZE:
    sys.exit("changed: the mask is kept in place of its random numbers")
PROGRAM
