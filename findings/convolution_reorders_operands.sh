#!/usr/bin/env bash
# PyTorch 2.13.0: on a CPU a convolution's weight gradient takes two more copies of its input.
#
# Expected: the gradient of a 3x3 filter reads the input and the output's gradient, and writes a
# few kilobytes; beside that a small workspace. The memory format changes the speed only.
# Happens: oneDNN works on a blocked layout. In the default format both operands are reordered first,
# each a copy of its full size, which the allocator hands out in the midst of backward, where the
# peak is. Tensors in channels_last are read as they are: the same step needs a seventh, and one of
# a depthwise convolution next to nothing.
#
# Seen (input and output's gradient have 2097152 bytes each):
#     groups  1, contiguous:    4341760 bytes more at the peak
#     groups  1, channels_last:  589824 bytes more at the peak
#     groups 64, contiguous:    4196608 bytes more at the peak
#     groups 64, channels_last:    6912 bytes more at the peak
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    torch==2.13.0 numpy==2.4.6
cd "$folder"
TMPDIR=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore - 2>log.txt <<'PROGRAM' || { cat log.txt; exit 1; }
import sys

import torch
from torch.profiler import profile

CHANNELS = 64


def peak_bytes(groups, memory_format):
    torch.manual_seed(0)
    data = torch.randn(8, CHANNELS, 32, 32).contiguous(memory_format=memory_format)
    weight = torch.randn(CHANNELS, CHANNELS // groups, 3, 3, requires_grad=True)
    out = torch.nn.functional.conv2d(data, weight, padding=1, groups=groups)
    gradient = torch.randn_like(out)
    with profile(profile_memory=True) as profiled:
        torch.autograd.grad(out, weight, gradient)
    held = peak = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


torch.set_num_threads(1)
operand_bytes = 8 * CHANNELS * 32 * 32 * 4
changed = False
for groups in (1, CHANNELS):
    contiguous, last = (peak_bytes(groups, each)
                        for each in (torch.contiguous_format, torch.channels_last))
    print(f"groups {groups:2}, contiguous:    {contiguous:7} bytes more at the peak")
    print(f"groups {groups:2}, channels_last: {last:7} bytes more at the peak")
    changed |= contiguous < 2 * operand_bytes or last > operand_bytes
if changed:
    sys.exit("changed: the layouts' extra memory")
PROGRAM
