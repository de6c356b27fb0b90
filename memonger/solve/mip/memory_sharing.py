"""Which values may share memory: what bounds must not count twice.

Blocks of memory are sets of values that in-place options join; which of the options MXNet takes
depends on the schedule. So these are the unions over all options of all modes.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Set

import numpy as np

from ...graph.types import Graph
from ...memory.liveness import own_buffer_tensors
from .implementations import Mode


@dataclass(frozen=True)
class Sharing:
    """Tensors by the memory that they may share; the smallest tensor stands for its set."""

    #: (tensors,) int64: representative of the tensor's group of values that may share memory for
    #: life.
    alike: np.ndarray
    #: The same for values that may ever lie in one block.
    together: np.ndarray

    @classmethod
    def of(cls, graph: Graph, modes: List[List[Mode]]) -> "Sharing":
        """O(number of options) time."""
        alike = _Union(len(graph.tensors))
        in_place = _Union(len(graph.tensors))
        loose: List[int] = []
        for ways in modes:
            for mode in ways:
                for option in mode.inplace:
                    source, target = mode.inputs[option.input], mode.outputs[option.output]
                    if not may_share(graph, source, target):
                        continue
                    in_place.join(source, target)
                    if option.input in mode.ignored:
                        loose.append(source)
                    elif option.identity:
                        alike.join(source, target)
        # MXNet does not count who holds an input that the op ignores: such an option may take
        # memory in which something else lives on that took it in place.
        shared = {in_place.find(source): source for source in loose}
        for tensor in range(len(graph.tensors)) if shared else ():
            root = in_place.find(tensor)
            if root in shared:
                alike.join(tensor, shared[root])
        return cls(alike.sets(), in_place.sets())

    def own_buffers(self, graph: Graph, modes: List[List[Mode]],
                    weightless: Set[int]) -> Dict[int, int]:
        """Sets of ``together`` with a value that has a buffer of its own beside any arena.

        Only values that every plan has: made, and read where it matters, in all modes.

        Returns
        -------
        dict
            Bytes of such a buffer by representative.
        """
        found: Dict[int, int] = {}
        for index, op in enumerate(graph.ops):
            for tensor in sorted(own_buffer_tensors(op) - weightless):
                maker = graph.tensors[tensor].producer
                if planned(graph, tensor) \
                        and all(tensor in mode.writes for mode in modes[maker]) \
                        and all(tensor in mode.inputs or tensor in mode.outputs
                                for mode in modes[index]):
                    root, size = int(self.together[tensor]), graph.tensors[tensor].size_bytes
                    found[root] = max(found.get(root, 0), size)
        return found


class _Union:
    """Disjoint sets of numbers; the smallest stands for its set."""

    def __init__(self, count: int):
        self.parent = list(range(count))

    def find(self, number: int) -> int:
        parent = self.parent
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    def join(self, one: int, other: int) -> None:
        small, large = sorted((self.find(one), self.find(other)))
        self.parent[large] = small

    def sets(self) -> np.ndarray:
        """The representative of each number."""
        return np.array([self.find(number) for number in range(len(self.parent))], dtype=np.int64)


def may_share(graph: Graph, source: int, target: int) -> bool:
    """MXNet's necessary conditions."""
    return (planned(graph, source) and planned(graph, target)
            and graph.tensors[source].size_bytes == graph.tensors[target].size_bytes)


def planned(graph: Graph, tensor: int) -> bool:
    """Whether the tensor's memory is the planner's."""
    group = graph.tensors[tensor]
    return group.pooled and group.producer >= 0


def added_at_once(graph: Graph, modes: List[List[Mode]]) -> Set[int]:
    """Tensors that may take no memory: right operands of sums of gradients.

    MXNet's DetectInplaceAddTo lets the op that makes such an operand add to the left one.
    """
    reads: Dict[int, int] = {}
    candidates = set()
    for ways in modes:
        # The fewest reads of any mode: a variant may leave one out.
        for tensor in set(ways[0].inputs):
            fewest = min(mode.inputs.count(tensor) for mode in ways)
            reads[tensor] = reads.get(tensor, 0) + fewest
        for mode in ways:
            if mode.adds_into_first \
                    and any(option.input == 0 for option in mode.inplace):
                candidates.add(mode.inputs[1])
    return {t for t in candidates if reads.get(t, 0) <= 1 and t not in graph.output_set}
