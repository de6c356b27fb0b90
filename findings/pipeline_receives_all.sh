#!/usr/bin/env bash
# PyTorch 2.13.0: a 1F1B pipeline stage holds receive buffers for all microbatches of a batch.
#
# Expected: 1F1B exists so that the microbatches in flight at a stage are bounded by the number of
# stages, two here, however many a batch is cut into; what a stage receives into is bounded as well.
# Happens: PipelineStage makes one buffer for each microbatch's input (behind the first stage) and
# one for each microbatch's gradient (before the last), at the first step, and keeps them from then
# on. With 64 microbatches stage 0 holds 64 gradients where 1F1B needs two.
#
# Seen:
#      4 microbatches: stage 0 holds  4 buffers for gradients, stage 1  4 for inputs
#     16 microbatches: stage 0 holds 16 buffers for gradients, stage 1 16 for inputs
#     64 microbatches: stage 0 holds 64 buffers for gradients, stage 1 64 for inputs
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    torch==2.13.0 numpy==2.4.6
cd "$folder"
cat > pipeline.py <<'PROGRAM'
import gc
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

ROWS, WIDTH, HIDDEN = 8, 256, 320  # only what crosses from stage to stage is HIDDEN wide


def run(rank, microbatches, found):
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store{microbatches}",
                            rank=rank, world_size=2)
    torch.manual_seed(rank)
    module = torch.nn.Linear(*((WIDTH, HIDDEN), (HIDDEN, 1))[rank])
    stage = PipelineStage(module, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, microbatches, torch.nn.functional.mse_loss)
    rows = ROWS * microbatches
    inputs, labels = torch.randn(rows, WIDTH), torch.randn(rows, 1)
    if rank == 0:
        schedule.step(inputs)
    else:
        schedule.step(target=labels)
    gc.collect()
    found.put((rank, len({
        held.untyped_storage().data_ptr() for held in gc.get_objects()
        if type(held) is torch.Tensor and held.shape == (ROWS, HIDDEN)
        and held.grad_fn is None})))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    changed = False
    for microbatches in (4, 16, 64):
        found = context.Queue()
        ranks = [context.Process(target=run, args=(rank, microbatches, found)) for rank in (0, 1)]
        for process in ranks:
            process.start()
        held = dict(found.get() for _ in ranks)
        for process in ranks:
            process.join()
        print(f"{microbatches:2} microbatches: stage 0 holds {held[0]:2} buffers for gradients, "
              f"stage 1 {held[1]:2} for inputs")
        changed |= held != {0: microbatches, 1: microbatches}
    if changed:
        sys.exit("changed: a stage's buffers are no longer one for each microbatch")
PROGRAM
TMPDIR=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore pipeline.py
