"""Measures ops in the network itself, one after the other.

MXNet's monitor callback runs after each op; waiting for its output there gives the time of every
op in place. That is closer to a training step than running ops alone: on CPUs most of MXNet's
time differences come from the memory layouts that one op leaves to the next.
"""
from __future__ import annotations

import ctypes
import statistics
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ...graph.types import Graph
from ...util import signals as interrupts
from ..capture.binding import GradReq
from ..check.training_run import TrainingRun
from ..costs.models import Attributes, is_view, op_signature
from ..plugin import fusion
from ..plugin.environment import mxnet

#: Seconds of ops by their place in ``graph.ops``.
OpSeconds = Dict[int, float]


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


def by_signature(graph: Graph, attributes: Attributes, seconds: OpSeconds) -> Dict[str, float]:
    """Seconds of a step by the signatures of its ops."""
    times: Dict[str, List[float]] = {}
    for index, second in seconds.items():
        if not is_view(graph, graph.ops[index]):
            times.setdefault(op_signature(graph, index, attributes), []).append(second)
    # The mean of equal ops: times their number it gives the time of all.
    return {key: statistics.mean(values) for key, values in times.items()}


@fusion.off()  # the graph's ops one by one
def step_seconds(graph: Graph, symbol: Any, shapes: Mapping[str, Sequence[int]],
                 type_dict: Optional[Mapping[str, Any]], grad_req: GradReq, ctx: Any,
                 time_limit_s: float, repeats: int = 5,
                 done: Optional[Callable[[float], None]] = None,
                 of: Callable[[List[float]], float] = statistics.median) -> Optional[OpSeconds]:
    """Median seconds of each op in some steps of training.

    ``graph``: as ``mx.read`` gives it for ``symbol``.
    ``repeats``: steps that count, after one that warms up.
    ``done``: called with the share of the work that is done.
    ``of``: reduces the times of an op to one: the median on an idle machine, the minimum on one
        with other work.
    Returns seconds of each op that ran, by its place in the graph; None when the ops that ran were
    not those of the graph.
    """
    started_s = time.perf_counter()
    start_s = _start_time_s(ctx)
    run = TrainingRun(symbol, shapes, ctx, type_dict, grad_req)
    run.step()
    clock = _Clock(run.executor)
    samples: Dict[int, List[float]] = {}
    for step in range(repeats + 1):
        raised: List[BaseException] = []
        with interrupts.collected(raised):  # MXNet would drop it in the monitor's callback
            taken = _one_step(run, clock, graph)
        if raised:
            raise raised[0]
        if taken is None:
            return None
        if step:  # the first warms up
            for index, seconds in taken.items():
                samples.setdefault(index, []).append(max(seconds - start_s, seconds / 10))
        if done is not None:
            done((step + 1) / (repeats + 1))
        if step and time.perf_counter() - started_s > time_limit_s:
            break
    return {index: of(values) for index, values in sorted(samples.items())}


def _one_step(run: TrainingRun, clock: _Clock, graph: Graph) -> Optional[Dict[int, float]]:
    """Seconds of each op that ran in one step; None when the names do not fit the graph."""
    clock.restart()
    outputs = run.executor.forward(is_train=True)
    forward = clock.events
    for output in outputs:
        output.wait_to_read()
    clock.restart()
    run.executor.backward(run.head_gradients)
    backward = clock.events
    run.mx.nd.waitall()
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
    """Time (s) to run and observe an op that does nothing."""
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
