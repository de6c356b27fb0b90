"""Which values may share memory: what bounds must not count twice.

Blocks of memory are sets of values that in-place options join; which of the options MXNet takes
depends on the schedule. So these are the unions over all options of all implementations.
"""
from __future__ import annotations

from typing import Dict, List, Set

import numpy as np

from ...graph.types import Graph
from .implementations import Implementations


def alike(graph: Graph, implementations: Implementations) -> np.ndarray:
    """(tensors,) int64: the smallest tensor of each set of values that may share memory for life.

    O(number of options) time.
    """
    alike = _Union(len(graph.tensors))
    in_place = _Union(len(graph.tensors))
    loose: List[int] = []
    renamed: Dict[int, int] = {}
    for of_op in implementations:
        for implementation in of_op:
            for option in implementation.inplace:
                source = implementation.inputs[option.input]
                target = implementation.outputs[option.output]
                if not may_share(graph, source, target):
                    # What another run of its maker makes lies in the pool, for all who rename it.
                    if option.identity and graph.tensors[source].producer >= 0 \
                            and planned(graph, target):
                        alike.join(target, renamed.setdefault(source, target))
                    continue
                in_place.join(source, target)
                if option.input in implementation.ignored_inputs:
                    loose.append(source)
                elif option.identity:
                    alike.join(source, target)
    # MXNet does not count references to inputs that an op ignores, so reuse of such an input may
    # overwrite a value that still lives in its memory.
    shared = {in_place.find(source): source for source in loose}
    for tensor in range(len(graph.tensors)) if shared else ():
        root = in_place.find(tensor)
        if root in shared:
            alike.join(tensor, shared[root])
    return alike.sets()


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

    def join(self, left: int, right: int) -> None:
        small, large = sorted((self.find(left), self.find(right)))
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


def added_at_once(graph: Graph, implementations: Implementations) -> Set[int]:
    """Tensors that may take no memory: right operands of sums of gradients.

    MXNet's DetectInplaceAddTo lets the op that makes such an operand add to the left one.
    """
    reads: Dict[int, int] = {}
    candidates = set()
    for of_op in implementations:
        # The fewest reads of any implementation: a variant may leave one out.
        for tensor in set(of_op[0].inputs):
            fewest = min(other.inputs.count(tensor) for other in of_op)
            reads[tensor] = reads.get(tensor, 0) + fewest
        for other in of_op:
            if other.adds_into_first and any(option.input == 0 for option in other.inplace):
                candidates.add(other.inputs[1])
    return {t for t in candidates if reads.get(t, 0) <= 1 and t not in graph.output_set}
