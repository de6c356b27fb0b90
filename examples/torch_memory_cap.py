"""Train a PyTorch module that runs out of memory, and train it with a plan.

    python examples/torch_memory_cap.py [--out FOLDER] [--cap 420MiB] [--steps N]

A GPT learns the text of a module of the standard library in processes of their own, which the
operating system gives no more than ``--cap`` for training (``RLIMIT_DATA``, set once the process
has loaded PyTorch, the module and the text). Without a plan the process runs out of memory; with a
plan for the cap it trains. The page of the plan is left in ``--out``, and a picture of both steps,
the cap, and what the allocator handed out in the last step.
"""
from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import resource
import subprocess
import sys
from typing import Any, Dict, List, Tuple

import torch
from torch_train import GPT, text_batches

import memonger.torch as mt
from memonger.errors import MemongerError, RenderError
from memonger.torch.pytorch.allocations import allocations
from memonger.util.units import format_bytes, parse_bytes

BATCH, LENGTH, WIDTH, LAYERS = 16, 256, 256, 6
#: Of the cap, for what no plan counts: what tracing the module takes, buffers of libraries.
ROOM_BYTES = 160 << 20
OUT_OF_MEMORY = 3


def module_and_batch() -> Tuple[torch.nn.Module, Tuple[torch.Tensor, torch.Tensor]]:
    """The model, and the batch that all steps train."""
    torch.manual_seed(7)
    characters, batches = text_batches(BATCH, LENGTH)
    return GPT(characters, LENGTH, WIDTH, LAYERS).train(), next(batches)


def planned(cap_bytes: int) -> Any:
    """The plan for the cap, with estimated op times: the same on every machine."""
    module, batch = module_and_batch()
    return mt.plan(module, batch, budget=cap_bytes - ROOM_BYTES, mode="eager", costs="cpu",
                   optimizer="adamw", name="gpt")


def data_bytes() -> int:
    """What this process holds of private writable memory, as RLIMIT_DATA counts it."""
    with open("/proc/self/status", encoding="ascii") as file:
        found = re.search(r"VmData:\s+(\d+) kB", file.read())
    assert found
    return int(found.group(1)) * 1024


def train(with_plan: bool, cap_bytes: int, steps: int) -> int:
    """Train under the cap; prints a record as JSON. Runs in a child."""
    module, batch = module_and_batch()
    fast = mt.compile(module, plan=planned(cap_bytes)) if with_plan else module
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    torch.randn(512, 512) @ torch.randn(512, 512)  # libraries start their threads
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes() + cap_bytes,) * 2)
    losses: List[float] = []
    held: List[int] = []
    try:
        for step in range(steps):
            optimizer.zero_grad()
            # The allocator is asked in a step of its own: the record takes memory, too.
            with allocations() if step == steps - 1 else contextlib.nullcontext([]) as events:
                loss = fast(*batch)
                loss.backward()
            optimizer.step()
            losses.append(float(loss))
        held = list(itertools.accumulate(size for _, size in events))
    except (RuntimeError, MemoryError) as error:
        words = str(error).strip().splitlines()[-1] if str(error) else type(error).__name__
        print(json.dumps({"failed": words}), flush=True)
        os._exit(OUT_OF_MEMORY)  # what ends in order may ask for memory again
    most_of = max(1, len(held) // 400)
    print(json.dumps({"losses": losses, "held_bytes": [
        max(held[k:k + most_of]) for k in range(0, len(held), most_of)]}))
    return 0


def run(with_plan: bool, options: argparse.Namespace) -> Dict[str, Any]:
    """The record of a child that trains; how it ended where it wrote none."""
    child = subprocess.run(
        [sys.executable, os.path.abspath(__file__), "--child", "plan" if with_plan else "plain",
         "--cap", options.cap, "--steps", str(options.steps)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600,
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "262144", "MALLOC_ARENA_MAX": "2"})
    lines = [line for line in child.stdout.splitlines() if line.startswith("{")]
    if lines:
        return dict(json.loads(lines[-1]))
    words = [line for line in child.stderr.splitlines() if "alloc" in line.lower()]
    return {"failed": words[-1].strip() if words else
            "the process ended with status %d" % child.returncode}


def words_of(record: Dict[str, Any]) -> str:
    if "failed" in record:
        return "out of memory (%s)" % record["failed"]
    losses = record["losses"]
    return "loss %.2f to %.2f in %d steps" % (losses[0], losses[-1], len(losses))


def picture(plan: Any, path: str, cap_bytes: int, held_bytes: List[int]) -> str:
    """Draw memory over one step, without a plan and with it, predicted and measured."""
    from draw_cap import draw_cap
    before_bytes = plan.total_bytes - plan.pool_bytes
    try:
        draw_cap(plan, cap_bytes, path, [before_bytes + size for size in held_bytes])
    except RenderError as error:
        return "no picture: %s" % error
    return "left %s" % path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="out", help="folder for the plan's page")
    parser.add_argument("--cap", default="420MiB", help="memory for training")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--child", choices=("plan", "plain"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    cap_bytes = parse_bytes(options.cap)
    if options.child:
        return train(options.child == "plan", cap_bytes, options.steps)
    os.makedirs(options.out, exist_ok=True)
    plan = planned(cap_bytes)
    print("the process may take %s for training" % format_bytes(cap_bytes))
    print("predicted: %s without a plan, %s with one (%+.1f %% time)" % (
        format_bytes(plan.baseline_total_bytes), format_bytes(plan.total_bytes),
        100 * plan.overhead))
    plain = run(False, options)
    print("trained without a plan: %s" % words_of(plain), flush=True)
    trained = run(True, options)
    print("trained with the plan:  %s" % words_of(trained))
    page = os.path.join(options.out, "gpt.html")
    plan.report(page)
    print("left %s" % page)
    print(picture(plan, os.path.join(options.out, "torch_memory_cap.png"), cap_bytes,
                  trained.get("held_bytes", [])))
    if "failed" not in plain:
        print("error: the cap is large enough without a plan; choose a smaller --cap",
              file=sys.stderr)
        return 1
    return 1 if "failed" in trained else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (MemongerError, OSError, subprocess.TimeoutExpired) as error:
        sys.exit("error: %s" % error)
