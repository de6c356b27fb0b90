#!/usr/bin/env bash
# PyTorch 2.13.0: the compiled backward pass of max-pooling takes 1.5 times the memory in a process of
# two threads, and writes positions of eight bytes that stay in registers with one.
#
# Expected: how many threads a kernel has changes its time and not what it allocates.
# Happens: Inductor makes the gradient of max-pooling of zeros, of positions in int64 from the stored
# offsets, and of a sum scattered to them. With one thread these are one kernel that writes the result
# alone. With several the sum is ATen's scatter, for threads add to the same element, and that reads
# its operands from memory: the positions, twice the bytes of the pooled values, and the gradients,
# which lie in place of a saved value. What was measured in a process of one thread is then exceeded.
#
# Seen (16 x 32 x 64 x 64, pooled by two, 2097152 bytes of pooled values):
#     1 thread:  8388608 bytes at the peak, which is the gradient, and 0 buffers of int64
#     2 threads: 12582912 bytes at the peak, and 1 buffer of int64
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    torch==2.13.0 numpy==2.4.6 setuptools==82.0.1
cd "$folder"
cat >program.py <<'PROGRAM'
import sys

import torch
from torch._inductor.utils import run_and_get_code
from torch.profiler import profile

threads = int(sys.argv[1])
torch.set_num_threads(threads)
torch.manual_seed(0)
data = torch.randn(16, 32, 64, 64, requires_grad=True)
pooled = torch.compile(lambda x: torch.nn.functional.max_pool2d(x, 2).square())
out = pooled(data)
gradient = torch.randn_like(out)
_, codes = run_and_get_code(lambda: torch.autograd.grad(out, data, gradient))
out = pooled(data)
with profile(profile_memory=True) as profiled:
    torch.autograd.grad(out, data, gradient)
held = peak = 0
for event in profiled.profiler.kineto_results.events():
    if event.name() == "[memory]":
        held += event.nbytes()
        peak = max(peak, held)
written = sum("empty_strided" in line and "torch.int64" in line
              for code in codes for line in code.splitlines())
print(f"threads: {threads}, bytes at the peak: {peak:8}, buffers of int64: {written}")
more = out.nbytes * 2 if threads > 1 else 0
if peak != data.nbytes + more or written != (threads > 1):
    sys.exit("changed: what the gradient of max-pooling allocates")
PROGRAM
for threads in 1 2; do
    TMPDIR=$folder OMP_NUM_THREADS=$threads env/bin/python -W ignore program.py $threads 2>log.txt || {
        cat log.txt
        exit 1
    }
done
