"""The measured process of :mod:`memonger.mx.check.measure`: reads a request, prints an answer."""
from __future__ import annotations

import contextlib
import time
from typing import Any, Dict, List

from ...util import machine
from ...util.processes import answer
from ..capture.binding import first_line
from ..plugin import loading as native
from ..plugin.environment import mxnet
from ..rewrite.apply import is_planned
from .training_run import TrainingRun


def _used_bytes(ctx: Any) -> int:
    """Memory in use: of the device, or the process's resident pages."""
    if ctx.device_type == "gpu":
        free, total = mxnet().context.gpu_memory_info(ctx.device_id)
        return int(total - free)
    return machine.resident_bytes()


def _peak_bytes(ctx: Any) -> int:
    """The most in use so far; a GPU's pool keeps what it once took."""
    return _used_bytes(ctx) if ctx.device_type == "gpu" else machine.peak_resident_bytes()


def _warm(ctx: Any) -> None:
    """Load libraries and buffers that every network needs, so that they do not count."""
    mx = mxnet()
    x = mx.nd.ones((2, 3, 8, 8), ctx=ctx)
    w = mx.nd.ones((4, 3, 3, 3), ctx=ctx)
    y = mx.nd.Convolution(x, w, kernel=(3, 3), num_filter=4, no_bias=True)
    mx.nd.dot(mx.nd.ones((64, 64), ctx=ctx), mx.nd.ones((64, 64), ctx=ctx)).wait_to_read()
    y.wait_to_read()
    mx.nd.waitall()


def _bound(symbol: Any, ctx: Any, request: Dict[str, Any]) -> TrainingRun:
    """The symbol bound for training; without a plan in MXNet's own storage."""
    planned = is_planned(symbol)
    with native.switched(True, planned, planned) if native.available() \
            else contextlib.nullcontext():
        return TrainingRun(symbol, request["shapes"], ctx, request["types"] or None,
                           request["grad_req"])


def run(request: Dict[str, Any]) -> Dict[str, Any]:
    """Bind the symbols, train them in turn, report bytes and times."""
    mx = mxnet()
    if native.available():
        native.load()
    kind, number = request["device"]
    ctx = mx.Context(kind, number)
    _warm(ctx)
    machine.forget_peak()
    before_bytes = _used_bytes(ctx)
    trials = [_bound(mx.sym.load_json(text), ctx, request) for text in request["symbols"]]
    machine.forget_peak()  # of filling the arrays
    steps_s: List[List[float]] = [[] for _ in trials]
    for step in range(request["steps"] + 1):  # the first warms up
        order = range(len(trials)) if step % 2 else reversed(range(len(trials)))
        for index in order:
            started_s = time.perf_counter()
            trials[index].step(step)
            if step:
                steps_s[index].append(time.perf_counter() - started_s)
    return {"allocated_bytes": max(0, _peak_bytes(ctx) - before_bytes), "steps_s": steps_s,
            "device": "%s(%d)" % (kind, number)}


if __name__ == "__main__":
    answer(run, first_line)
