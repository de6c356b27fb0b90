"""Train on several workers with MXNet's KVStore, without a plan and with one.

    python examples/dist_train.py [--kvstore dist_sync] [--workers 2] [--budget 70%] [--out FOLDER]

Starts a scheduler, a server and the workers as processes of this machine. The network is planned
once; each worker loads the plan. With ``dist_sync`` and MXNET_MKLDNN_ENABLED=0 each worker ends
with the parameters of the unplanned job bit for bit. Worker 0 writes a checkpoint after each epoch,
and ``--resume N`` goes on behind epoch N where there is one. A worker that ends early ends the job:
the others are stopped within ten seconds, and the message says which checkpoint to resume from.
"""
from __future__ import annotations

import argparse
import glob
import os
import re
import signal
import socket
import subprocess
import sys
import time
from typing import Dict, List, Optional

os.environ.setdefault("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")
os.environ.setdefault("MXNET_SUBGRAPH_VERBOSE", "0")

import numpy as np

SEED, BATCH = 7, 64
#: How often the launcher looks after its workers, in seconds.
POLL_S = 0.2


def train(options: argparse.Namespace) -> int:
    """One worker: train a share of the digits; leaves its parameters in ``--out``."""
    import mxnet as mx
    from train_digits import digits, network

    import memonger
    memonger.native.load()
    store = mx.kv.create(options.kvstore)
    everything, _ = digits()
    rows = slice(store.rank, None, store.num_workers)
    batches = mx.io.NDArrayIter(everything.data[0][1].asnumpy()[rows],
                                everything.label[0][1].asnumpy()[rows], BATCH,
                                last_batch_handle="discard")
    symbol = memonger.load_plan(options.plan).symbol if options.plan else network(1)
    module = mx.mod.Module(symbol, context=mx.cpu())
    module.bind(batches.provide_data, batches.provide_label)
    mx.random.seed(SEED)
    np.random.seed(SEED)
    module.init_params(mx.init.Xavier())
    if options.resume:
        _, arguments, states = mx.model.load_checkpoint(options.checkpoint, options.resume)
        module.set_params(arguments, states)
    # No momentum: the servers keep it, and no checkpoint has it.
    module.init_optimizer(store, "sgd", {"learning_rate": 0.05})
    for epoch in range(options.resume, options.epochs):
        batches.reset()
        for batch in batches:
            module.forward_backward(batch)
            module.update()
            if (store.rank, epoch) == (options.kill_rank, options.kill_epoch):
                os.kill(os.getpid(), signal.SIGKILL)
        if store.rank == 0:  # whole or not at all
            symbol.save(options.checkpoint + "-symbol.json")
            module.save_params(options.checkpoint + ".part")
            os.replace(options.checkpoint + ".part",
                       "%s-%04d.params" % (options.checkpoint, epoch + 1))
        store._barrier()  # nobody is ahead of the checkpoint
    arguments, _ = module.get_params()
    np.savez(os.path.join(options.out, "%s-%d.npz" % (options.name, store.rank)),
             **{name: array.asnumpy() for name, array in arguments.items()})
    return 0


def job(options: argparse.Namespace, name: str, plan: str = "") -> None:
    """Run scheduler, server and workers to the end.

    Raises SystemExit, with what to do, where a worker ends early or the time is over.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port),
              "DMLC_NUM_WORKER": str(options.workers), "DMLC_NUM_SERVER": "1",
              "DMLC_NODE_HOST": "127.0.0.1", "DMLC_INTERFACE": "lo"}
    checkpoint = os.path.join(options.out, name)
    has_checkpoint = os.path.exists("%s-%04d.params" % (checkpoint, options.resume))
    words = [sys.executable, os.path.abspath(__file__), "--worker", "--name", name, "--plan", plan,
             "--checkpoint", checkpoint, "--out", options.out, "--kvstore", options.kvstore,
             "--epochs", str(options.epochs),
             "--resume", str(options.resume if has_checkpoint else 0),
             "--kill-rank", str(options.kill_rank), "--kill-epoch", str(options.kill_epoch)]
    # Whoever imports MXNet in such a role is a scheduler or a server, and stays one to the end.
    serve = [sys.executable, "-c", "import mxnet"]
    others = [start(serve, dict(common, DMLC_ROLE=role)) for role in ("scheduler", "server")]
    workers = [start(words, dict(common, DMLC_ROLE="worker")) for _ in range(options.workers)]
    try:
        wait(workers, options.limit, checkpoint)
    finally:
        for process in workers + others:
            if process.poll() is None:
                process.kill()
            process.wait()


def start(words: List[str], variables: Dict[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(words, env={**os.environ, **variables})


def wait(workers: List["subprocess.Popen[bytes]"], limit_s: float, checkpoint: str) -> None:
    end_s = time.monotonic() + limit_s
    while True:
        ended = [worker.poll() for worker in workers]
        early = next((code for code in ended if code), None)
        if early is not None:
            raise SystemExit("error: a worker ended early, %s, and the job was stopped; %s" % (
                "by signal %d" % -early if early < 0 else "with status %d" % early,
                advice(checkpoint)))
        if all(code == 0 for code in ended):
            return
        if time.monotonic() > end_s:
            raise SystemExit("error: the job was stopped after %g seconds (--limit); %s" % (
                limit_s, advice(checkpoint)))
        time.sleep(POLL_S)


def advice(checkpoint: str) -> str:
    epochs = [int(re.findall(r"(\d+)\.params$", path)[0])
              for path in glob.glob(checkpoint + "-*.params")]
    return "go on with --resume %d" % max(epochs) if epochs else "there is no checkpoint yet"


def differing(out: str, workers: int) -> List[str]:
    """Parameters that differ between the unplanned job and the planned one."""
    found = []
    for rank in range(workers):
        plain, planned = (np.load(os.path.join(out, "%s-%d.npz" % (name, rank)))
                          for name in ("plain", "planned"))
        found += ["%s of worker %d" % (name, rank) for name in plain.files
                  if plain[name].tobytes() != planned[name].tobytes()]
    return found


def main(words: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--kvstore", default="dist_sync", choices=("dist_sync", "dist_async"))
    add("--workers", type=int, default=2)
    add("--budget", default="70%")
    add("--epochs", type=int, default=2)
    add("--resume", type=int, default=0, metavar="EPOCH", help="go on from a checkpoint")
    add("--limit", type=float, default=300.0, metavar="SECONDS", help="for each job")
    add("--out", default="out", help="folder for plan, checkpoints and parameters")
    for hidden in ("--plan", "--name", "--checkpoint"):
        add(hidden, default="", help=argparse.SUPPRESS)
    for hidden in ("--kill-rank", "--kill-epoch"):
        add(hidden, type=int, default=-1, help=argparse.SUPPRESS)
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.worker:
        return train(options)
    os.makedirs(options.out, exist_ok=True)
    from train_digits import network

    import memonger
    plan = memonger.plan(network(1), budget=options.budget, name="digits", time_limit=1,
                         shapes={"data": (BATCH, 1, 8, 8), "softmax_label": (BATCH,)})
    print("each of %d workers: %s" % (options.workers, repr(plan)))
    path = os.path.join(options.out, "plan.json")
    plan.save(path)
    job(options, "plain")
    job(options, "planned", path)
    different = differing(options.out, options.workers)
    print("parameters of all workers: %s" % (
        "the same bit for bit as without a plan" if not different else
        "%d differ from those without a plan" % len(different)))
    # Asynchronous workers see one another's updates in another order each time.
    return int(bool(different) and options.kvstore == "dist_sync"
               and os.environ.get("MXNET_MKLDNN_ENABLED") == "0")


if __name__ == "__main__":
    sys.exit(main())
