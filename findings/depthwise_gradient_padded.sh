#!/usr/bin/env bash
# PyTorch 2.13.0: on a CPU the weight gradient of a depthwise 5x5 or 7x7 convolution in channels_last
# takes 66 times the weight, with AVX-512 258 times, where the one of a 3x3 filter takes three times.
#
# Expected: channels_last costs a depthwise convolution no memory, as with 3x3 filters, where oneDNN
# has a kernel of its own for it and reads the operands as they are.
# Happens: for larger filters oneDNN takes its kernel for groups of channels. That pads each group, one
# channel here, to a block of 8 by 8 (AVX-512: 16 by 16), and the padded gradient is there while
# the kernel runs. It does not depend on the batch, so that at small batches it is the peak of a step:
# the default format, in which no such kernel is taken, needs a tenth of it. 512 channels with 7x7
# filters, as in ConvNeXt, take 6 MiB for a weight of 98 KiB, and 25 MiB with AVX-512.
#
# Seen (128 channels, 16x16, batches of 1 and 8 alike; ONEDNN_MAX_CPU_ISA=AVX2):
#     3x3: weight   4608 bytes, channels_last:   13824 bytes more at the peak
#     5x5: weight  12800 bytes, channels_last:  844800 bytes more at the peak
#     7x7: weight  25088 bytes, channels_last: 1655808 bytes more at the peak
#     7x7: weight  25088 bytes, contiguous:     175872 bytes more at the peak
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    torch==2.13.0 numpy==2.4.6
cd "$folder"
export ONEDNN_MAX_CPU_ISA=AVX2
TMPDIR=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore - 2>log.txt <<'PROGRAM' || { cat log.txt; exit 1; }
import sys

import torch
from torch.profiler import profile

CHANNELS = 128


def peak_bytes(batch, filter_size, memory_format):
    data = torch.randn(batch, CHANNELS, 16, 16).contiguous(memory_format=memory_format)
    weight = torch.randn(CHANNELS, 1, filter_size, filter_size, requires_grad=True)
    out = torch.nn.functional.conv2d(data, weight, padding=filter_size // 2, groups=CHANNELS)
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
changed = False
for size, name in ((3, "channels_last"), (5, "channels_last"), (7, "channels_last"),
                   (7, "contiguous")):
    memory_format = getattr(torch, name if name == "channels_last" else "contiguous_format")
    weight_bytes = CHANNELS * size * size * 4
    taken = [peak_bytes(batch, size, memory_format) for batch in (1, 8)]
    label = name + ":"
    print(f"{size}x{size}: weight {weight_bytes:6} bytes, {label:14} {taken[0]:7} bytes more at the peak")
    padded = taken[0] == taken[1] and taken[0] > 60 * weight_bytes
    changed |= padded != (size > 3 and name == "channels_last")
if changed:
    sys.exit("changed: which depthwise gradients are padded")
PROGRAM
