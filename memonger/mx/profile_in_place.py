"""Measures ops where they run: in the network itself, one after the other.

MXNet's monitor callback runs after each op; waiting for its output there gives the time of every
op in place. That is closer to a training step than running ops alone: on CPUs most of MXNet's
time differences come from the memory layouts that one op leaves to the next.
"""
from __future__ import annotations

import ctypes
import statistics
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ..cost import Attributes, is_view, op_signature
from ..graph import Graph
from .bind import GradReq
from .environment import mxnet
from .trial import Trial


class _Clock:
    """Collects the name and the time of each op's last output during a step."""

    def __init__(self, executor: Any):
        from mxnet.base import NDArrayHandle
        from mxnet.ndarray import NDArray
        self.events: List[Any] = []

        def after(name: Any, handle: Any) -> None:
            array = NDArray(ctypes.cast(handle, NDArrayHandle), writable=False)
            array.wait_to_read()
            text = name.decode() if isinstance(name, bytes) else str(name)
            self.events.append((text, time.perf_counter()))
        executor.set_monitor_callback(after)

    def restart(self) -> None:
        self.events = [("", time.perf_counter())]


def measure_in_place(graph: Graph, attributes: Attributes, symbol: Any,
                     shapes: Mapping[str, Sequence[int]], type_dict: Optional[Mapping[str, Any]],
                     grad_req: GradReq, ctx: Any, times: Dict[str, float], time_limit_s: float,
                     repeats: int = 5, done: Optional[Callable[[float], None]] = None) -> bool:
    """Add the times of all ops of a network by training it for a few steps.

    Parameters
    ----------
    graph, attributes
        As ``mx.read`` gives them for ``symbol``.
    times : dict
        Seconds by signature; replaced by what is measured here.
    repeats : int
        Steps of which the median counts, after one that warms up.
    done : callable, optional
        Called with the share of the work that is done.

    Returns
    -------
    bool
        False when the ops that ran were not those of the graph; nothing is added then.
    """
    started_s = time.perf_counter()
    start_s = _start_time_s(ctx)
    trial = Trial(symbol, shapes, ctx, type_dict, grad_req)
    trial.step()
    clock = _Clock(trial.executor)
    samples: List[List[float]] = [[] for _ in graph.ops]
    for step in range(repeats + 1):
        taken = _one_step(trial, clock, graph)
        if taken is None:
            return False
        if step:  # the first warms up
            for index, seconds in taken.items():
                samples[index].append(max(seconds - start_s, seconds / 10))
        if done is not None:
            done((step + 1) / (repeats + 1))
        if step and time.perf_counter() - started_s > time_limit_s:
            break
    by_signature: Dict[str, List[float]] = {}
    for index, op in enumerate(graph.ops):
        if samples[index] and not is_view(graph, op):
            by_signature.setdefault(op_signature(graph, index, attributes), []).append(
                statistics.median(samples[index]))
    # Equal ops in different places: what matters is their sum.
    times.update((key, statistics.mean(values)) for key, values in by_signature.items())
    return True


def _one_step(trial: Trial, clock: _Clock, graph: Graph) -> Optional[Dict[int, float]]:
    """Seconds of each op that ran in one step; None when the names do not fit the graph."""
    clock.restart()
    outputs = trial.executor.forward(is_train=True)
    forward = clock.events
    for output in outputs:
        output.wait_to_read()
    clock.restart()
    trial.executor.backward(trial.head_gradients)
    backward = clock.events
    trial.mx.nd.waitall()
    taken: Dict[int, float] = {}
    index = -1
    for events in (forward, backward):
        before_s = events[0][1]
        position = 1
        while position < len(events):
            # MXNet runs the graph's order, without ops that it folded into others.
            index = next((i for i in range(index + 1, len(graph.ops))
                          if events[position][0].startswith(_node_name(graph, i) + "_")), -1)
            if index < 0 or position + len(graph.ops[index].outputs) > len(events):
                return None
            position += len(graph.ops[index].outputs)
            taken[index] = events[position - 1][1] - before_s
            before_s = events[position - 1][1]
    return taken


def _node_name(graph: Graph, index: int) -> str:
    return graph.ops[index].name.split("~")[0]


def _start_time_s(ctx: Any) -> float:
    """What running and noticing an op costs that does nothing."""
    mx = mxnet()
    chain = mx.sym.var("data")
    for _ in range(40):
        chain = chain + 1
    executor = chain.bind(ctx, {"data": mx.nd.zeros((1,), ctx)}, grad_req="null")
    executor.forward(is_train=True)
    clock = _Clock(executor)
    lengths: List[float] = []
    for _ in range(5):
        clock.restart()
        executor.forward(is_train=True)
        moments = [moment for _, moment in clock.events]
        lengths += [b - a for a, b in zip(moments[1:], moments[2:])]
    return statistics.median(lengths)
