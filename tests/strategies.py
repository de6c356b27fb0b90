"""Random training graphs, decisions and schedules, for property tests.

Each maker takes a ``random.Random``, so a test can run thousands of cases from numbered seeds; the
hypothesis strategies below wrap the makers, so failures shrink. What comes out is always valid:
``graph.check()`` passes and every schedule is one that can run.
"""
from __future__ import annotations

import random
from dataclasses import replace
from typing import Dict, List, Optional, Tuple

import pytest
from hypothesis import strategies as st

from memonger.graph.in_use import graph_in_use
from memonger.graph.offers import Offer, offering
from memonger.graph.schedule import Consumer, Schedule, expand_in_part
from memonger.graph.types import DTYPES, Graph, Implementation, Inplace, Op, Tensor
from memonger.mx.rewrite.gradient_split import with_placeholders

SIZES = (1, 1, 2, 3, 4, 4, 4, 7, 8, 16, 64)
OTHER_DTYPES = ("float16", "float64", "uint8", "int32", "int64", "bool")


def seeds(count: int, quick: int) -> List[object]:
    """Numbers of random cases for ``parametrize``: all but the first ``quick`` are marked slow."""
    return [*range(quick),
            *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(quick, count))]


def batches(quick: range, *slow: range) -> List[object]:
    """Ranges of random cases for ``parametrize``: all but the first are marked slow."""
    return [quick, *(pytest.param(numbers, marks=pytest.mark.slow) for numbers in slow)]


class _Maker:
    """Tensors and ops under construction."""

    def __init__(self, rng: random.Random, dtypes: bool, devices: int):
        self.rng, self.dtypes, self.devices = rng, dtypes, devices
        self.tensors: List[Tensor] = []
        self.ops: List[Op] = []

    def tensor(self, name: str, producer: int, category: str = "activation",
               pooled: bool = True, like: Optional[int] = None) -> int:
        if like is not None:
            shape, dtype = self.tensors[like].shape, self.tensors[like].dtype
        else:
            # Many equal sizes, a few odd ones, now and then none at all.
            shape = (self.rng.choice(SIZES) * self.rng.choice((1, 64)),)
            if self.rng.random() < 0.03:
                shape = (0, 5)
            dtype = "float32"
            if self.dtypes and self.rng.random() < 0.3:
                dtype = self.rng.choice(OTHER_DTYPES)
        size_bytes = DTYPES[dtype]
        for extent in shape:
            size_bytes *= extent
        self.tensors.append(Tensor(name, size_bytes, producer, category,
                                   "device" if pooled else "outside", shape, dtype))
        return len(self.tensors) - 1

    def some(self, items, most):
        items = list(items)
        return self.rng.sample(items, min(len(items), self.rng.randint(0, most)))

    def inplace(self, inputs: int, outputs: int) -> Tuple[Inplace, ...]:
        if not inputs or not outputs or self.rng.random() < 0.4:
            return ()
        return tuple(Inplace(self.rng.randrange(inputs), self.rng.randrange(outputs),
                             self.rng.random() < 0.25) for _ in range(self.rng.randint(1, 3)))


def training_graph(rng: random.Random, num_forward: int = 8, dtypes: bool = True,
                   devices: int = 1, pools: str = "executor", unasked: bool = False) -> Graph:
    """A forward pass with branches, its gradients, and all that complicates storage.

    Ops with several outputs, values that nobody reads, shared parameters, in-place options (true
    ones and ones that do not fit), ignored inputs, small statistics that stay with the first run,
    ops that must not run again, stateful ops, other dtypes, empty tensors, sums of gradients.

    Parameters
    ----------
    rng : random.Random
    num_forward : int
        Number of forward ops.
    dtypes : bool
        Whether tensors of other dtypes than float32 occur.
    devices : int
        Ops are spread over so many devices.
    pools : str
        As in ``Graph.pools``.
    unasked : bool
        Whether a CachedOp keeps tensors for gradients that nobody asked for.
    """
    make = _Maker(rng, dtypes, devices)
    sources = [make.tensor("data", -1, "input", False)]
    params = [make.tensor("w%d" % i, -1, "parameter", False) for i in range(rng.randint(1, 3))]
    values = list(sources)
    for index in range(num_forward):
        recent = values[-4:] if rng.random() < 0.7 else values
        inputs = [rng.choice(recent) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
        inputs += make.some(params, 1)
        like = rng.choice(inputs) if rng.random() < 0.6 else None
        outputs = [make.tensor("f%d" % index, index, like=like)]
        outputs += [make.tensor("f%d_%d" % (index, k), index,
                                like=like if rng.random() < 0.3 else None)
                    for k in range(1, rng.choice((1, 1, 1, 2, 3)))]
        ignored = tuple(sorted(make.some(range(len(inputs)), 1))) if rng.random() < 0.15 else ()
        if rng.random() < 0.05:
            ignored = tuple(range(len(inputs)))
        kept = tuple(range(1, len(outputs))) if rng.random() < 0.3 else ()
        make.ops.append(Op.of(
            "op%d" % index, "Op", tuple(inputs), tuple(outputs), ignored_inputs=ignored,
            inplace=make.inplace(len(inputs), len(outputs)), kept_outputs=kept,
            not_recomputable_because="random" if rng.random() < 0.12 else "",
            time_s=rng.choice((0.0, 1.0, 1.0, 2.0, 5.0)), device=rng.randrange(devices),
            workspace_bytes=rng.choice((0, 0, 16))))
        # Small side outputs are seldom read by others.
        values.append(outputs[0])
        values += [t for t in outputs[1:] if rng.random() < 0.3]
    results = [make.ops[-1].outputs[0]] + make.some(values[1:-1], 1)
    for tensor in results:
        make.tensors[tensor] = replace(make.tensors[tensor], category="output",
                                       space="device" if pools == "executor" else "outside")
    gradients = _backward(make, num_forward, results, sources + params)
    held = make.some([t for op in make.ops[:num_forward] for t in op.outputs],
                     3) if unasked and pools == "cached_op" else []
    graph = Graph(tuple(make.tensors), tuple(make.ops), tuple(results + gradients),
                  name="random", pools=pools,
                  held_for_gradients=tuple(sorted(held)),
                  objects_bytes_per_op=rng.choice((0, 0, 8)))
    graph.check()
    return graph


def _backward(make: _Maker, num_forward: int, results, leaves) -> List[int]:
    rng = make.rng
    parts: Dict[int, List[int]] = {}
    for tensor in results:
        parts[tensor] = [make.tensor("head%d" % tensor, -1, "head_gradient", False, like=tensor)]

    def total(tensor: int, forward: int) -> int:
        # The sum of all gradients of a tensor, as a chain of `_grad_add` or one `add_n`.
        terms = parts.pop(tensor)
        if len(terms) > 2 and rng.random() < 0.5:
            index = len(make.ops)
            out = make.tensor("sum%d" % tensor, index, like=tensor)
            make.ops.append(Op.of("sum%d" % tensor, "add_n", tuple(terms), (out,), True, forward,
                                  inplace=(Inplace(0, 0),), time_s=0.5))
            return out
        while len(terms) > 1:
            index = len(make.ops)
            out = make.tensor("add%d" % index, index, like=tensor)
            make.ops.append(Op.of("add%d" % index, "_grad_add", (terms[0], terms[1]), (out,), True,
                                  forward, inplace=(Inplace(0, 0), Inplace(1, 0)), time_s=0.5,
                                  adds_into_first=True))
            terms[:2] = [out]
        return terms[0]

    for forward in range(num_forward - 1, -1, -1):
        op = make.ops[forward]
        grads = [total(t, forward) for t in op.outputs if t in parts]
        if not grads:
            continue
        read = make.some(op.inputs, 2) + make.some(op.outputs, 2)
        inputs = grads + read
        index = len(make.ops)
        targets = [t for t in dict.fromkeys(op.inputs) if t != 0 or rng.random() < 0.3]
        if not targets:
            targets = [op.inputs[0]]
        outputs = [make.tensor("g%d_%d" % (forward, t), index, like=t) for t in targets]
        ignored = tuple(make.some(range(len(inputs)), 1)) if rng.random() < 0.1 else ()
        make.ops.append(Op.of(
            "_backward_%s" % op.name, "_backward_Op", tuple(inputs), tuple(outputs), True,
            forward, uses_state=not op.not_recomputable_because and rng.random() < 0.1,
            ignored_inputs=ignored, inplace=make.inplace(len(inputs), len(outputs)),
            time_s=op.time_s * 2, device=op.device))
        for tensor, gradient in zip(targets, outputs):
            parts.setdefault(tensor, []).append(gradient)
    gradients = []
    for leaf in leaves:
        if leaf in parts:
            gradient = total(leaf, -1)
            if make.tensors[gradient].producer >= 0 and gradient not in gradients:
                make.tensors[gradient] = replace(make.tensors[gradient], category="gradient",
                                                 space="outside")
                gradients.append(gradient)
    return gradients


def decisions(rng: random.Random, graph: Graph) -> Dict[int, Dict[Consumer, int]]:
    """Some ops to run again, some of them with clones of their own for single consumers."""
    share = rng.random()
    chosen = {i: {} for i, op in enumerate(graph.ops)
              if not op.is_backward and rng.random() < share}
    for op in chosen:
        if rng.random() < 0.4:
            for reader in {r for t in graph.ops[op].outputs for r in graph.consumers[t]}:
                if rng.random() < 0.5:
                    backward = graph.ops[reader].is_backward
                    chosen[op][reader, 0 if backward else 1] = rng.randint(0, 3)
    return chosen


def variants(rng: random.Random, graph: Graph) -> Graph:
    """The same graph with variants: backward ops that read a small mask in place of a tensor."""
    tensors, found = list(graph.tensors), []
    for index, op in enumerate(graph.ops):
        if not op.is_backward or op.forward_op < 0 or op.kind != "_backward_Op" \
                or rng.random() < 0.5:
            continue
        forward = graph.ops[op.forward_op]
        readable = [t for t in op.inputs if t in forward.inputs + forward.outputs]
        if not readable or forward.not_recomputable_because:
            continue
        dropped = rng.choice(readable)
        mask = len(tensors)
        tensors.append(Tensor(forward.name + "_mask", 2, op.forward_op, shape=(2,),
                              dtype="uint8"))
        found.append(Offer("mask", op.forward_op, (
            (op.forward_op, Implementation(
                forward.inputs, forward.outputs + (mask,), forward.ignored_inputs,
                forward.inplace, forward.time_s + 0.1)),
            (index, Implementation(
                tuple(mask if t == dropped else t for t in op.inputs), op.outputs,
                op.ignored_inputs, op.inplace, op.time_s)))))
    return offering(replace(graph, tensors=tuple(tensors)), found)


def without_variants(graph: Graph) -> Graph:
    """The graph with the framework's own implementations only."""
    return replace(graph, variants=(), ops=tuple(
        replace(op, implementations=op.implementations[:1]) for op in graph.ops))


def split_gradients(rng: random.Random, graph: Graph) -> Graph:
    """The same graph with more variants: backward ops whose outputs two ops make, one by one."""
    split = [i for i, op in enumerate(graph.ops) if op.kind == "_backward_Op"
             and op.forward_op >= 0 and not op.uses_state and len(op.outputs) > 1
             and rng.random() < 0.7]
    split_graph = with_placeholders(without_variants(graph), set(split))
    place = [i for i, op in enumerate(split_graph.ops) if op.runs]

    found = [Offer(variant.name, place[variant.op], tuple(
        (place[op], other) for op, other in graph.implementations_of(number)), variant.exact)
        for number, variant in enumerate(graph.variants)]
    tensors = split_graph.tensors + tuple(replace(t, producer=place[t.producer])
                                   for t in graph.tensors[len(split_graph.tensors):])
    for index in split:
        op = split_graph.ops[place[index]]
        forward = split_graph.ops[op.forward_op]
        later = tuple(t for t in op.inputs if t not in forward.inputs or rng.random() < 0.5)
        found.append(Offer("split", op.forward_op, (
            (op.forward_op, Implementation(forward.inputs, forward.outputs,
                                           forward.ignored_inputs, forward.inplace,
                                           forward.time_s)),
            (place[index] - 1, Implementation(op.inputs, op.outputs[1:], time_s=op.time_s / 2)),
            (place[index], Implementation(later, op.outputs[:1], time_s=op.time_s / 2)))))
    return offering(replace(split_graph, tensors=tensors), found)


def schedule_with_variants(rng: random.Random, graph: Graph) -> Schedule:
    """Random decisions on a random choice of the graph's variants that do not overlap."""
    chosen, taken = [], set()
    for index, variant in enumerate(graph.variants):
        ops = {op for op, _ in variant.choices}
        if not ops & taken and rng.random() < 0.6:
            chosen.append(index)
            taken |= ops
    in_use = graph_in_use(graph, Schedule((), tuple(chosen)))
    return Schedule(expand_in_part(in_use, decisions(rng, in_use)).steps, tuple(chosen))


def live_graph(rng: random.Random, num_ops: int = 10) -> Graph:
    """A training step of another planner: one value an op, the peak of live units counts."""
    tensors, ops, forward = [], [], rng.randint(1, num_ops)
    for index in range(num_ops):
        inputs = rng.sample(range(index), min(index, rng.choice((0, 1, 1, 2, 2, 3))))
        tensors.append(Tensor("n%d" % index, rng.choice(SIZES), index))
        ops.append(Op.of("n%d" % index, "node", tuple(inputs), (index,), index >= forward,
                         not_recomputable_because="" if index < forward else "backward",
                         time_s=float(rng.randint(0, 9))))
    return Graph(tuple(tensors), tuple(ops), (num_ops - 1,), name="live", pools="units")


# ---------------------------------------------------------------------- hypothesis strategies
@st.composite
def graphs(draw, max_forward: int = 10, dtypes: bool = True, devices: int = 1,
           pools: str = "executor") -> Graph:
    """Strategy for :func:`training_graph`."""
    return training_graph(draw(st.randoms(use_true_random=False)),
                          draw(st.integers(1, max_forward)), dtypes, devices, pools)


@st.composite
def planned_graphs(draw, max_forward: int = 10, **options) -> Tuple[Graph, Schedule]:
    """A training graph and the schedule of random decisions."""
    rng = draw(st.randoms(use_true_random=False))
    graph = training_graph(rng, draw(st.integers(1, max_forward)), **options)
    return graph, expand_in_part(graph, decisions(rng, graph))


@st.composite
def live_graphs(draw, max_ops: int = 12) -> Tuple[Graph, Schedule]:
    """A training step of another planner with random decisions."""
    rng = draw(st.randoms(use_true_random=False))
    graph = live_graph(rng, draw(st.integers(1, max_ops)))
    return graph, expand_in_part(graph, decisions(rng, graph))
