"""Measures each distinct op of a network, bound alone.

Forward ops are bound alone and run. A gradient is measured as MXNet runs it, by binding its
forward op alone and running ``backward``, with gradients for just those inputs that need one;
the copy of the head gradient that ``backward`` makes is measured and subtracted. The largest ops by
the analytic model come first, so that a time limit costs little accuracy.
"""
from __future__ import annotations

import statistics
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from ...graph.types import Graph
from ..capture.binding import first_line, sparse_gradients
from ..costs.models import (
    Attributes,
    Roofline,
    attributes_of,
    distinct_ops,
    op_signature,
    tensor_types,
    wanted_outputs,
)
from ..costs.work import TensorType
from ..plugin import fusion
from ..plugin.environment import logger, mxnet
from ..symbol.common_subexpressions import symbol_text


class _Job(NamedTuple):
    """Something to bind and run: one forward op, perhaps with gradients."""

    forward: int
    #: Backward ops whose time together is that of ``backward``; none for a forward op.
    backward: Tuple[int, ...]
    #: Which inputs of the forward op get a gradient.
    gradients: Tuple[bool, ...]
    expected_s: float


@fusion.off()
def measure_alone(graph: Graph, attributes: Attributes, ctx: Any, times: Dict[str, float],
                  fallback: Roofline, time_limit_s: float, repeats: int,
                  done: Callable[[float], None]) -> None:
    """Add the times of all ops whose signatures are missing and that can run alone.

    Parameters
    ----------
    times : dict
        Seconds by signature; measured ones are added.
    fallback : Roofline
        Its times order the ops, largest first.
    repeats : int
        Samples of which the median counts.
    done : callable
        Called with the fraction of the work done.
    """
    mx = mxnet()
    started_s = time.perf_counter()
    jobs = _jobs(graph, attributes, times, fallback)
    bench = _Bench(ctx, repeats)
    for number, job in enumerate(jobs):
        elapsed_s = time.perf_counter() - started_s
        if elapsed_s > time_limit_s:
            logger.info("time limit: %d of %d ops measured", number, len(jobs))
            break
        # An op that takes long alone must not use up the time of all others.
        share_s = min(2.0, max(0.05, (time_limit_s - elapsed_s) / 4))
        try:
            measured_s = bench.run(graph, attributes, job, share_s)
        except mx.base.MXNetError as error:
            logger.info("%s cannot be run alone: %s", graph.ops[job.forward].name,
                        first_line(error))
            continue
        _record(graph, attributes, fallback, job, measured_s, times)
        done((number + 1) / len(jobs))


def _jobs(graph: Graph, attributes: Attributes, known: Mapping[str, float],
          fallback: Roofline) -> List[_Job]:
    """What has to be run, the longest first."""
    expected = fallback.op_times(graph, attributes).times_s
    every = [op_signature(graph, index, attributes) for index in range(len(graph.ops))]
    counts: Dict[str, int] = {}
    for key in every:
        counts[key] = counts.get(key, 0) + 1
    parts: Dict[int, List[int]] = {}
    for index, op in enumerate(graph.ops):
        if op.kind.startswith("_backward_") and op.forward_op >= 0:
            parts.setdefault(op.forward_op, []).append(index)
    jobs = []
    for key, index in distinct_ops(graph, attributes).items():
        if key in known:
            continue
        op = graph.ops[index]
        weight = expected[index] * counts[key]
        if not op.kind.startswith("_backward_"):
            jobs.append(_Job(index, (), (False,) * len(op.inputs), weight))
        elif op.forward_op >= 0 and index == parts[op.forward_op][0]:
            together = tuple(parts[op.forward_op])
            wanted = wanted_outputs(graph, index)
            inputs = graph.ops[op.forward_op].inputs
            gradients = tuple((wanted[i] if i < len(wanted) else False) if len(together) == 1
                              else graph.tensors[t].category not in ("input", "aux")
                              for i, t in enumerate(inputs))
            if any(gradients):
                jobs.append(_Job(op.forward_op, together, gradients, weight))
    return sorted(jobs, key=lambda job: (-job.expected_s, job.forward))


def _record(graph: Graph, attributes: Attributes, fallback: Roofline, job: _Job,
            measured_s: float, times: Dict[str, float]) -> None:
    """Store a measured time; several gradients of one op divide it in the model's proportions."""
    if not job.backward:
        times[op_signature(graph, job.forward, attributes)] = measured_s
        return
    expected = []
    for index in job.backward:
        op = graph.ops[index]
        expected.append(fallback.time_s(
            op.kind, attributes_of(graph, index, attributes), tensor_types(graph, op.inputs),
            tensor_types(graph, op.outputs), wanted_outputs(graph, index)))
    for index, share in zip(job.backward, expected):
        times[op_signature(graph, index, attributes)] = measured_s * (
            share / sum(expected) if sum(expected) > 0 else 1 / len(expected))


class _Bench:
    """Runs single ops on a device."""

    def __init__(self, ctx: Any, repeats: int):
        self._mx, self._ctx, self._repeats = mxnet(), ctx, repeats
        self._copies: Dict[Tuple[TensorType, ...], float] = {}
        tiny = self._array(TensorType((1,)))
        other = tiny.copy()
        #: What it takes to start an op that does nothing.
        self._start_s = self._median(lambda: tiny.copyto(other), 0.2)

    def _array(self, kind: TensorType) -> Any:
        # Away from zero: no denormal numbers, and valid for logarithms and as indices.
        random = np.random.RandomState(0)
        values = random.uniform(0.1, 0.9, kind.shape)
        return self._mx.nd.array(values, ctx=self._ctx, dtype=kind.dtype)

    def _median(self, call: Callable[[], Any], limit_s: float) -> float:
        """Median time of a call, each sample long enough for the clock."""
        waitall = self._mx.nd.waitall
        waitall()
        started_s = time.perf_counter()
        call()
        waitall()
        call()
        waitall()
        once_s = (time.perf_counter() - started_s) / 2
        inner = max(1, min(50, int(0.002 / max(once_s, 1e-6))))
        samples: List[float] = []
        while len(samples) < self._repeats:
            sample_s = time.perf_counter()
            for _ in range(inner):
                call()
            waitall()
            now_s = time.perf_counter()
            samples.append((now_s - sample_s) / inner)
            if now_s - started_s > limit_s:
                break
        return statistics.median(samples)

    def _copy_s(self, kinds: Sequence[TensorType]) -> float:
        """Time of the copy of head gradients that ``Executor.backward`` makes."""
        key = tuple(kinds)
        if key not in self._copies:
            pairs = [(self._array(kind), self._array(kind)) for kind in kinds]
            self._copies[key] = self._median(
                lambda: [source.copyto(target) for source, target in pairs], 0.3)
        return self._copies[key]

    def run(self, graph: Graph, attributes: Attributes, job: _Job, limit_s: float) -> float:
        """Seconds that the op, or its gradients, take."""
        op = graph.ops[job.forward]
        heads = _visible_outputs(graph, job.forward)
        symbol = self._mx.sym.load_json(_lone_op(
            op.kind, attributes_of(graph, job.forward, attributes), len(op.inputs), heads))
        kinds = dict(zip(_input_names(len(op.inputs)), tensor_types(graph, op.inputs)))
        gradients = dict(zip(kinds, job.gradients))
        names, aux = symbol.list_arguments(), symbol.list_auxiliary_states()
        if not any(gradients.values()):
            # With no gradient at all MXNet would bind for inference and fuse what training does
            # not; one for the smallest input costs nothing, as `backward` is not called.
            real = [n for n in names if kinds[n].dtype.startswith("float")]
            for name in sorted(real, key=lambda n: kinds[n].elements)[:1]:
                gradients[name] = True
        arrays = {name: self._array(kind) for name, kind in kinds.items()}
        sparse = sparse_gradients(symbol)
        executor = symbol.bind(
            self._ctx, {n: arrays[n] for n in names},
            {n: self._mx.nd.zeros(kinds[n].shape, self._ctx, kinds[n].dtype,
                                  stype="row_sparse" if n in sparse else "default")
             for n in names if gradients[n]},
            {n: "write" if gradients[n] else "null" for n in names}, {n: arrays[n] for n in aux})
        if not job.backward:
            total_s = self._median(lambda: executor.forward(is_train=True), limit_s)
            return max(total_s - self._start_s, total_s / 10)
        executor.forward(is_train=True)
        output_kinds = [TensorType(tuple(o.shape), np.dtype(o.dtype).name)
                        for o in executor.outputs]
        head_gradients = [self._array(kind) for kind in output_kinds]
        total_s = self._median(lambda: executor.backward(head_gradients), limit_s)
        return max(total_s - self._copy_s(output_kinds), total_s / 10)


def _input_names(count: int) -> List[str]:
    return ["input%d" % i for i in range(count)]


def _visible_outputs(graph: Graph, index: int) -> List[int]:
    """Outputs that forward ops or the user read; the first one if there is none."""
    results = set(graph.outputs)
    visible = [position for position, tensor in enumerate(graph.ops[index].outputs)
               if tensor in results or any(not graph.ops[reader].is_backward
                                           for reader in graph.consumers[tensor])]
    return visible or [0]


def _lone_op(kind: str, attributes: Mapping[str, str], inputs: int, heads: Sequence[int]) -> str:
    """The JSON of a symbol that consists of one op."""
    nodes: List[Dict[str, Any]] = [{"op": "null", "name": name, "inputs": []}
                                   for name in _input_names(inputs)]
    own = {k: str(v) for k, v in attributes.items() if not k.startswith("__")}
    nodes.append({"op": kind, "name": "op", "attrs": own,
                  "inputs": [[i, 0, 0] for i in range(inputs)]})
    return symbol_text({"nodes": nodes, "arg_nodes": list(range(inputs)),
                        "node_row_ptr": list(range(inputs + 2)),
                        "heads": [[inputs, position, 0] for position in heads],
                        "attrs": {"mxnet_version": ["int", 10901]}})
