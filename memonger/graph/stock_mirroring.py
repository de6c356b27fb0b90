"""What stock MXNet runs when nodes carry ``force_mirroring``.

MXNet 1.9.1 (``src/nnvm/gradient.cc``) copies every mirrored forward node once. The gradient
function of a mirrored op is called with the copy, so its gradient ops read copies; the gradient
ops of an op that is not mirrored keep reading the originals. Gradient ops also wait for the copy
of their forward op, even when no op reads its result. This module reproduces the depth-first
order of the resulting graph, so that memory under stock mirroring is predicted exactly.
"""
from __future__ import annotations

from typing import AbstractSet, Dict, FrozenSet, Iterator, List, Set, Tuple

from .schedule import Schedule, Step
from .types import Graph


def expand_mirrored(graph: Graph, mirrored: AbstractSet[int]) -> Schedule:
    """The steps that stock MXNet runs when the ops in ``mirrored`` carry ``force_mirroring``.

    ``graph``: a training graph as MXNet binds it, every op with its ``control_deps``.
    ``mirrored``: forward op ids. Copies that nothing reaches do not run.
    Steps come in MXNet's order: depth first from the outputs, inputs before control dependencies.
    """
    count = len(graph.ops)
    steps: List[Step] = []
    made: Dict[int, int] = {}

    def node_of(op: int, copies: bool) -> int:
        return op + count if copies and op in mirrored else op

    def visit(node: int) -> Tuple[int, List[int], Iterator[int]]:
        """The node, who makes its inputs (-1 for external tensors), and all that it waits for."""
        made[node] = -1
        op = graph.ops[node % count]
        copies = node >= count or (op.is_backward and op.forward_op in mirrored)
        inputs = [-1 if graph.tensors[t].producer < 0
                  else node_of(graph.tensors[t].producer, copies) for t in op.inputs]
        return node, inputs, iter(inputs + [node_of(dep, copies) for dep in op.control_deps])

    for tensor in graph.outputs:
        root = graph.tensors[tensor].producer
        if root < 0 or root in made:
            continue
        stack = [visit(root)]
        while stack:
            node, inputs, needs = stack[-1]
            following = next((other for other in needs if other >= 0 and other not in made), None)
            if following is not None:
                stack.append(visit(following))
                continue
            stack.pop()
            made[node] = len(steps)
            steps.append(Step(node % count, tuple(-1 if i < 0 else made[i] for i in inputs)))
    return Schedule(tuple(steps))


def safe_to_mirror(graph: Graph, mirrored: AbstractSet[int]) -> FrozenSet[int]:
    """The largest part of ``mirrored`` that stock MXNet runs with correct gradients.

    Ops that may not run again are left out, and those that need a reader (``Op.needs_reader``)
    whose copy would run although no op reads its first output. Taking an op out changes who reads
    the copies before it, so this repeats until nothing changes.
    """
    allowed = {op for op in mirrored
               if graph.ops[op].recomputable and not graph.ops[op].is_backward}
    while True:
        schedule = expand_mirrored(graph, allowed)
        read: Set[Tuple[int, int]] = set()
        first_run: Dict[int, int] = {}
        for index, step in enumerate(schedule.steps):
            first_run.setdefault(step.op, index)
            op = graph.ops[step.op]
            read.update((source, tensor) for position, (source, tensor)
                        in enumerate(zip(step.sources, op.inputs))
                        if source >= 0 and position not in op.ignored_inputs)
        bad = {step.op for index, step in enumerate(schedule.steps)
               if first_run[step.op] != index and graph.ops[step.op].needs_reader
               and (index, graph.ops[step.op].outputs[0]) not in read}
        if not bad:
            return frozenset(allowed)
        allowed -= bad
