"""From a step of plain autograd that was recorded to a graph, and to what each module takes of it.
"""
from __future__ import annotations

import typing
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import torch
import torch.fx as fx

from ...graph.schedule import expand
from ...graph.types import DTYPES, Graph, Op, Tensor
from ...memory.timeline import timeline
from ...plans.by_module import ModuleBytes
from ...report.formatting import short_kind
from ..pytorch import private_ops
from ..pytorch.plain_step import PlainStep
from .captured import BUFFER, INPUT, PARAMETER, TEMPORARY


@dataclass
class Named:
    """What storages of a step are: parameters, buffers, inputs, and gradients."""

    #: By number of the storage: category, module and name.
    outside: Dict[int, Tuple[str, str, str]] = field(default_factory=dict)
    #: By number of the storage: module and name of the parameter.
    gradients: Dict[int, Tuple[str, str]] = field(default_factory=dict)


def operators(step: PlainStep) -> fx.GraphModule:
    """The distinct calls of operators in a step, each on operands of its own."""
    graph = fx.Graph()
    reserves: Dict[str, torch.Tensor] = {}

    def operand(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        name = "operand%d" % len(graph.nodes)
        if private_ops.is_fake(value):
            node = graph.placeholder(name)
        else:
            reserves[name] = value
            node = graph.create_node("get_attr", name)
        node.meta["val"] = value
        return node
    for target, args, kwargs in step.calls.values():
        args, kwargs = private_ops.pytree.tree_map(operand, (args, kwargs))
        graph.call_function(target, args, kwargs)
    graph.output(())
    return fx.GraphModule(reserves, graph)


def graph_of(step: PlainStep, named: Named, temporary_bytes: Mapping[str, int]) -> Graph:
    """The step as a graph without a choice, in which each value lives as long as it did.

    Where that is longer than it is read, as Python held it or autograd, the last operator that ran
    while it was there is one more reader.
    """
    tensors: List[Tensor] = []
    made: List[List[int]] = [[] for _ in step.ops]
    labels: List[str] = []
    kinds: typing.Counter[str] = Counter()
    for ran in step.ops:
        word = short_kind(str(ran.target))
        kinds[word] += 1
        labels.append("%s%s_%d" % (ran.path and ran.path + "/", word, kinds[word]))
    readers = [set(ran.read) for ran in step.ops]
    for number, memory in enumerate(step.memories):
        category, name = "activation", ""
        if memory.maker < 0:
            category, *parts = named.outside.get(number, (INPUT, "", "input%d" % number))
            name = ".".join(filter(None, parts))
        else:
            name = labels[memory.maker] + (":%d" % len(made[memory.maker])
                                           if made[memory.maker] else "")
            made[memory.maker].append(number)
        if number in named.gradients:
            name = "%s:gradient" % ".".join(filter(None, named.gradients[number]))
        if memory.last is not None and memory.last > memory.maker:
            readers[memory.last].add(number)
        shape, dtype = (memory.shape, memory.dtype) if memory.dtype in DTYPES else (
            (memory.size_bytes,), "uint8")
        tensors.append(Tensor(name, memory.size_bytes, memory.maker, category,
                              "outside" if memory.maker < 0 else "device", shape, dtype))
    ops = []
    for place, ran in enumerate(step.ops):
        taken = temporary_bytes.get(ran.signature, 0)
        if taken:
            made[place].append(len(tensors))
            tensors.append(Tensor(labels[place] + TEMPORARY, taken, place, "activation", "device",
                                  (taken,), "uint8"))
        read = sorted(n for n in readers[place] if tensors[n].producer < place)
        ops.append(Op.of(labels[place], str(ran.target), tuple(read), tuple(made[place]),
                         ran.in_backward, not_recomputable_because="the step as it was recorded"))
    outputs = [n for n, m in enumerate(step.memories) if m.maker >= 0 and m.last is None]
    graph = Graph(tuple(tensors), tuple(ops), tuple(outputs))
    graph.check()
    return graph


def by_module(graph: Graph, step: PlainStep, named: Named, paths: Sequence[str],
              optimizer_bytes: Mapping[str, int]) -> Tuple[Tuple[ModuleBytes, ...], str]:
    """What each module takes of a step, and the step's worst moment in words.

    ``paths``: of the modules, in order. ``optimizer_bytes``: what is held for the parameters of
    each.
    """
    numbers = {tensor.name: number for number, tensor in enumerate(graph.tensors)}
    line = timeline(graph, expand(graph, {}), "live")

    def path_of(number: int) -> str:
        if number in named.gradients:
            return named.gradients[number][0]
        return step.ops[maker].path if (maker := graph.tensors[number].producer) < len(
            step.ops) else ""
    found: Dict[str, typing.Counter[str]] = {path: Counter() for path in ["", *paths]}
    for number, (category, path, _) in named.outside.items():
        size_bytes = step.memories[number].size_bytes
        if category in (PARAMETER, BUFFER):
            found[path][category] += size_bytes
            found[path]["peak"] += size_bytes
        elif number in named.gradients:
            found[path]["peak"] += size_bytes
    for number, (path, _) in named.gradients.items():
        found[path]["gradient"] += step.memories[number].size_bytes
    for alive in line.at_peak:
        found[path_of(numbers[alive.tensor])]["peak"] += alive.bytes
    begins = graph.first_backward
    for alive in line.alive_at(begins) if begins < len(line) else ():
        if alive.start < begins:
            found[path_of(numbers[alive.tensor])]["kept"] += alive.bytes
    rows = []
    for path, sizes in found.items():
        held = optimizer_bytes.get(path, 0)
        rows.append(ModuleBytes(path, sizes[PARAMETER], sizes[BUFFER], sizes["gradient"], held,
                                sizes["kept"], sizes["peak"] + held))
    return tuple(rows), _moment(graph, line.peak_step)


def _moment(graph: Graph, place: int) -> str:
    if place < 0:
        return "none"
    op = graph.ops[place]
    if place == len(graph.ops) - 1 and op.kind == "optimizer":
        return "the optimizer's step"
    path, _, name = op.name.rpartition("/")
    return "%s of %s (%s, operator %d of %d)" % (
        "backward" if op.is_backward else "forward", path or "what is outside modules", name,
        place + 1, len(graph.ops))
