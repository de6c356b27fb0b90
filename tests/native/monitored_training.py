"""Reads the internal arrays of an executor with an arena in every way that MXNet offers.

    python monitored_training.py

Prints how many values were those of the plain network's executor; fails when one was not. The
engine comes from MXNET_ENGINE_TYPE.
"""
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Dict, List

os.environ.setdefault("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")
os.environ.setdefault("MXNET_SUBGRAPH_BACKEND", "NONE")  # cannot bind internals with BatchNorm
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import mxnet as mx
import numpy as np

from memonger import native
from native.graphs import convolutions, filled, mark, with_arena

SHAPES = {"data": (8, 3, 64, 64)}
CHEAP = {prefix + str(i): "1" for i in range(3) for prefix in ("bn", "relu")}
Values = Dict[str, List[Any]]


def bound(symbol: Any) -> Any:
    executor = filled(symbol.simple_bind(mx.cpu(), **SHAPES))
    mx.nd.waitall()
    return executor


def monitored(symbol: Any, monitor_all: bool) -> Values:
    """What Monitor prints about two steps."""
    executor = bound(symbol)
    monitor = mx.mon.Monitor(1, lambda array: mx.nd.norm(array.astype("float64")),
                             monitor_all=monitor_all)
    monitor.install(executor)
    seen: Values = {}
    for _ in range(2):
        monitor.tic()
        executor.forward(is_train=True)
        executor.backward()
        for step, name, text in monitor.toc():
            seen.setdefault("%s in step %d" % (name, step), []).append(float(text))
    return seen


def internals(symbol: Any) -> Values:
    """Every forward value, of a second executor that shares the first one's memory."""
    executor = bound(symbol)
    inner = symbol.get_internals()
    other = inner.bind(mx.cpu(), executor.arg_dict, grad_req="null",
                       aux_states=executor.aux_dict, shared_exec=executor)
    seen: Values = {}
    for _ in range(3):
        executor.forward(is_train=True)
        executor.backward()
        values = other.forward(is_train=True)
        copies = [value.copy() for value in values]
        executor.forward(is_train=True)
        for name, copy in zip(inner.list_outputs(), copies):
            seen.setdefault(name, []).append(copy.asnumpy())
    return seen


def outputs(symbol: Any) -> Values:
    executor = bound(symbol)
    seen: Values = {"outputs": []}
    for _ in range(5):
        executor.forward(is_train=True)
        executor.backward()
        seen["outputs"].append(executor.outputs[0].asnumpy())
        seen["outputs"].append(executor.grad_dict["conv0_weight"].asnumpy())
    return seen


def main() -> None:
    native.load()
    ours = with_arena(mark(convolutions(), CHEAP))
    count = 0
    for read in (lambda symbol: monitored(symbol, False), lambda symbol: monitored(symbol, True),
                 internals, outputs):
        expected, found = read(convolutions()), read(ours)
        for name, values in expected.items():
            if "moving" in name:  # MXNet's backward changes these without telling the engine
                continue
            # A clone reads parameters once more.
            if not all(np.array_equal(a, b) for a, b in zip(values, found[name])):
                raise SystemExit("%s: %s, not %s" % (name, found[name], values))
            count += 1
    print("the same: %d" % count)


if __name__ == "__main__":
    main()
