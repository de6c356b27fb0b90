"""Train a network that runs out of memory, and train it with a plan.

    python examples/memory_cap.py [--out FOLDER] [--cap 270MiB] [--epochs N]

A residual network learns scikit-learn's handwritten digits in processes of their own, which the
operating system gives no more than ``--cap`` for a training step (``RLIMIT_DATA``, set once the
process has loaded MXNet and the data). Without a plan the process runs out of memory; with a plan
for the cap it trains. Then the largest batches under the cap are searched, without a plan and with
one that recomputes. The picture of both steps and the cap is left in ``--out``.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
from typing import Any, Dict, Tuple

os.environ.setdefault("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")
os.environ.setdefault("MXNET_SUBGRAPH_VERBOSE", "0")

import memonger  # isort: skip
import mxnet as mx
import numpy as np
from train_digits import failed, network, say

from memonger.util.units import format_bytes, parse_bytes

SEED, BATCH, IMAGE = 7, 256, 32
#: Of the cap, for what no plan counts: stacks of MXNet's threads, buffers of its libraries.
ROOM_BYTES = 64 << 20
OUT_OF_MEMORY = 3
SHAPES = {"data": (BATCH, 1, IMAGE, IMAGE), "softmax_label": (BATCH,)}
OPTIMIZER = {"optimizer": "adam", "optimizer_params": {"learning_rate": 0.003}}


def digits() -> Tuple[np.ndarray, np.ndarray]:
    """The 8 x 8 scans, each pixel four times as wide and as high."""
    from sklearn.datasets import load_digits
    data, label = load_digits(return_X_y=True)
    data = (data.reshape(-1, 1, 8, 8) / 16.0).astype("float32")
    return data.repeat(IMAGE // 8, 2).repeat(IMAGE // 8, 3), label.astype("float32")


def data_bytes() -> int:
    """What this process holds of private writable memory, as RLIMIT_DATA counts it."""
    with open("/proc/self/status", encoding="ascii") as file:
        found = re.search(r"VmData:\s+(\d+) kB", file.read())
    assert found
    return int(found.group(1)) * 1024


def train(path: str, cap_bytes: int, epochs: int) -> int:
    """Train the symbol in a file under a cap; prints a record as JSON. Runs in a child."""
    memonger.native.load()
    symbol = mx.sym.load(path)
    data, label = digits()
    mx.random.seed(SEED)
    np.random.seed(SEED)
    batches = mx.io.NDArrayIter(data, label, BATCH, shuffle=True, last_batch_handle="discard")
    accuracy = mx.metric.Accuracy()  # of the epoch that runs
    before_bytes = data_bytes()
    resource.setrlimit(resource.RLIMIT_DATA, (before_bytes + cap_bytes,) * 2)
    module = mx.mod.Module(symbol, context=mx.cpu())
    try:
        module.fit(batches, num_epoch=epochs, eval_metric=accuracy, initializer=mx.init.Xavier(),
                   batch_end_callback=lambda _: mx.nd.waitall(), **OPTIMIZER)
    except (mx.MXNetError, MemoryError) as error:
        words = str(error).strip().splitlines()[-1] if str(error) else type(error).__name__
        print(json.dumps({"failed": words}), flush=True)
        os._exit(OUT_OF_MEMORY)  # MXNet's threads may wait for memory that never comes
    print(json.dumps({"accuracy": accuracy.get()[1], "took_bytes": data_bytes() - before_bytes}))
    return 0


def planned(cap_bytes: int) -> Any:
    """The plan for the cap, with estimated op times: the same on every machine."""
    return memonger.plan(network(), budget=cap_bytes - ROOM_BYTES, name="digits", costs="cpu",
                         time_limit=3, shapes=SHAPES, **OPTIMIZER)


def run(symbol: Any, path: str, options: argparse.Namespace) -> Dict[str, Any]:
    """The record of a child that trains ``symbol``; how it ended where it wrote none."""
    symbol.save(path)
    child = subprocess.run(
        [sys.executable, os.path.abspath(__file__), "--child", path, "--cap",
         str(parse_bytes(options.cap)), "--epochs", str(options.epochs)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=600)
    lines = [line for line in child.stdout.splitlines() if line.startswith("{")]
    if lines:
        return dict(json.loads(lines[-1]))
    words = [line for line in child.stderr.splitlines() if "alloc" in line.lower()]
    return {"failed": words[-1].strip() if words else
            "MXNet crashed: the process ended with status %d" % child.returncode}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="out", help="folder for the picture")
    parser.add_argument("--cap", default="270MiB", help="memory for training")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cap_bytes = parse_bytes(options.cap)
    if options.child:
        return train(options.child, cap_bytes, options.epochs)
    os.makedirs(options.out, exist_ok=True)
    net, plan = network(), planned(cap_bytes)
    print("the process may take %s for training" % format_bytes(cap_bytes))
    print("predicted: %s without a plan, %s with one (%+.1f %% time)" % (
        format_bytes(plan.baseline_total_bytes), format_bytes(plan.total_bytes),
        100 * plan.overhead))
    say("training without a plan")
    plain = run(net, os.path.join(options.out, "digits-symbol.json"), options)
    print("trained without a plan: %s" % words_of(plain))
    say("training with the plan, %d epochs" % options.epochs)
    trained = run(plan.symbol, os.path.join(options.out, "digits-planned-symbol.json"), options)
    print("trained with the plan:  %s" % words_of(trained))
    say("searching the largest batches")
    largest = memonger.max_batch(net, cap_bytes - ROOM_BYTES, variants="none", time_limit=5,
                                 shapes=SHAPES, costs="cpu", **OPTIMIZER)
    print("largest batch: %d without a plan, %d with one" % (largest.unplanned, largest.planned))
    plan.save(os.path.join(options.out, "plan.json"))
    for name in ("memory_cap.svg", "memory_cap.png"):
        print(picture(plan, os.path.join(options.out, name), cap_bytes,
                      trained.get("took_bytes", 0)))
    if "failed" not in plain:
        return failed("the cap is large enough without a plan; choose a smaller --cap")
    return failed("the planned network did not train") if "failed" in trained else 0


def words_of(record: Dict[str, Any]) -> str:
    if "failed" in record:
        return "out of memory (%s)" % record["failed"]
    return "%.0f %% of the digits right in the last epoch, %s taken" % (
        100 * record["accuracy"], format_bytes(record["took_bytes"]))


def picture(plan: Any, path: str, cap_bytes: int, took_bytes: int) -> str:
    """Draw memory over one step, without a plan and with it, under the cap."""
    from draw_cap import draw_cap

    from memonger.util.errors import RenderError
    try:
        draw_cap(plan, cap_bytes, path, [took_bytes] if took_bytes else [])
    except RenderError as error:
        return "no picture: %s" % error
    return "left %s" % path


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (memonger.errors.MemongerError, OSError, subprocess.TimeoutExpired) as error:
        sys.exit("error: %s" % error)
