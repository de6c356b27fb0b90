"""Several training graphs laid in one: nested, or one after the other."""
from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Sequence, Tuple

from memonger.graph.types import Graph

#: The parts of a graph in the order of their execution: which one, and whether its backward.
Order = Sequence[Tuple[int, bool]]
NESTED: Order = ((0, False), (1, False), (1, True), (0, True))
IN_A_ROW: Order = ((0, False), (0, True), (1, False), (1, True))


def laid(parts: Sequence[Graph], order: Order) -> Graph:
    """The ops of all parts in one graph; variants are left out."""
    place: Dict[Tuple[int, int], int] = {}
    for number, late in order:
        for index, op in enumerate(parts[number].ops):
            if op.is_backward == late:
                place[number, index] = len(place)
    base = [sum(len(part.tensors) for part in parts[:n]) for n in range(len(parts))]
    tensors = [replace(
        t, name="%d/%s" % (n, t.name), producer=place.get((n, t.producer), -1),
        storage_of=t.storage_of + base[n] if t.storage_of >= 0 else -1)
        for n, part in enumerate(parts) for t in part.tensors]
    ops = []
    for number, index in sorted(place, key=lambda key: place[key]):
        op = parts[number].ops[index]
        own = op.implementations[0]

        def moved(ids: Sequence[int], number: int = number) -> Tuple[int, ...]:
            return tuple(t + base[number] for t in ids)

        ops.append(replace(
            op, name="%d/%s" % (number, op.name), forward_op=place.get((number, op.forward_op), -1),
            control_deps=tuple(place[number, dep] for dep in op.control_deps),
            implementations=(replace(own, inputs=moved(own.inputs), outputs=moved(own.outputs)),)))
    outputs = tuple(t + base[n] for n, part in enumerate(parts) for t in part.outputs)
    graph = replace(parts[0], tensors=tuple(tensors), ops=tuple(ops), outputs=outputs, variants=(),
                    name="laid", held_for_gradients=())
    graph.check()
    return graph


def reading_across(graph: Graph, pairs: Sequence[Tuple[int, int]]) -> Graph:
    """The graph whose ops read one more tensor each: pairs of op and tensor."""
    ops: List = list(graph.ops)
    for op, tensor in pairs:
        ops[op] = ops[op].changed(inputs=(*ops[op].inputs, tensor))
    graph = replace(graph, ops=tuple(ops))
    graph.check()
    return graph
