"""Measures operator variants in the network, with their effect on the ops that read their results.

Variants replace ops in a few rounds, as many at a time as fit without two variants side by side,
until every variant has run once. The cost of a variant is its own time plus what its readers take
longer: on CPUs an operator leaves its result in a memory layout of its own, and its reader may have
to convert it, or run much slower. What readers save beside variants of one kind they need not save
in a plan, where other operators stand between.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Set, Tuple

from ...graph.types import Graph, Op
from ..capture.record import Captured
from ..costs.models import op_signature
from ..rewrite.apply import from_json
from ..rewrite.variant_graph import offers
from ..symbol.common_subexpressions import to_json
from ..symbol.planned_symbol import mark_storage
from ..symbol.swap import members, swap_json
from .in_place import OpSeconds


@dataclass(frozen=True)
class SwappedNetwork:
    """A network with variants in place of some of its ops."""

    symbol: Any
    captured: Captured
    #: Names of the ops that are variants.
    chosen: FrozenSet[str]

    @property
    def ops(self) -> List[int]:
        """Places of the variants and of their gradients in the graph."""
        graph = self.captured.graph
        return [i for i, op in enumerate(graph.ops)
                if (_forward_name(graph, op) or op.name) in self.chosen]

    def signatures(self) -> Set[str]:
        """Of the variants and their gradients."""
        graph, attributes = self.captured.graph, self.captured.attributes
        return {op_signature(graph, i, attributes) for i in self.ops}


def swapped_networks(symbol: Any, graph: Graph, read: Callable[[Any], Captured],
                     on_gpu: bool = False) -> Iterator[SwappedNetwork]:
    """Networks with variants swapped in; together they contain each variant of each op once.

    ``graph``: as ``read`` gives it for ``symbol``.
    """
    text = to_json(symbol)
    near = _neighbours(graph)
    waiting = sorted(((op, name) for op, kinds in offers(graph, text, on_gpu=on_gpu).items()
                      for name in kinds), key=lambda item: item[1])
    while waiting:
        taken: Dict[str, str] = {}
        choice: Dict[str, str] = {}
        for op, name in waiting:
            chain = members(text, op, name)
            # A variant's time depends on its neighbours, which shall be MXNet's operators.
            beside = {taken.get(other, name) for member in chain for other in near[member]}
            if beside == {name} and not any(member in taken for member in chain):
                taken.update(dict.fromkeys(chain, name))
                choice[op] = name
        waiting = [(op, name) for op, name in waiting if choice.get(op) != name]
        # As in a plan: the ops of an arena share the space in which they copy.
        swapped = from_json(mark_storage(swap_json(text, choice, graph.op_index.keys())))
        yield SwappedNetwork(swapped, read(swapped), frozenset(choice))


def _neighbours(graph: Graph) -> Dict[str, Set[str]]:
    """Names of each forward op and of those that read from it or that it reads from."""
    names: Dict[str, Set[str]] = {op.name: {op.name} for op in graph.ops[:graph.first_backward]}
    for op in graph.ops[:graph.first_backward]:
        for tensor in op.inputs:
            producer = graph.tensors[tensor].producer
            if producer >= 0:
                names[op.name].add(graph.ops[producer].name)
                names[graph.ops[producer].name].add(op.name)
    return names


def seconds_with_neighbours(graph: Graph, base_s: OpSeconds, swapped: SwappedNetwork,
                            swapped_s: OpSeconds) -> OpSeconds:
    """Seconds of the variants in a swapped network, with what their readers take longer.

    ``graph``, ``base_s``: the unplanned network and the seconds of its ops.
    ``swapped_s``: seconds of the ops of the swapped one.
    """
    other = swapped.captured.graph
    variants = set(swapped.ops)
    before_s = {_key(graph, i): seconds for i, seconds in base_s.items()}
    result = {i: swapped_s[i] for i in sorted(variants) if i in swapped_s}
    for reader, seconds in swapped_s.items():
        known_s = before_s.get(_key(other, reader))
        makers = {other.tensors[t].producer for t in other.ops[reader].inputs} & set(result)
        if reader in variants or known_s is None or not makers:
            continue
        for maker in makers:
            result[maker] += (seconds - known_s) / len(makers)
    return {i: max(seconds, swapped_s[i]) for i, seconds in result.items()}


def _key(graph: Graph, index: int) -> Tuple[str, str, int]:
    """A key that identifies an op in the network and in swapped ones."""
    op = graph.ops[index]
    return op.name, _forward_name(graph, op), len(op.outputs)


def _forward_name(graph: Graph, op: Op) -> str:
    """The name of the op whose gradient this is; empty for others."""
    return graph.ops[op.forward_op].name if op.is_backward and op.forward_op >= 0 else ""
