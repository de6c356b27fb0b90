"""What in-place options save while an op runs, and what they cost: the value they take is gone.

MXNet lets an output take the memory of an input that nothing reads afterwards. A bound may count
such a saving at any op that has the option, whatever is decided; it is tighter to count it only
where the input is not needed later, or is made again. :class:`InplaceReuse` names those inputs.
"""
from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, NamedTuple, Sequence, Set, Tuple

import numpy as np

from ...graph.types import Graph, Implementation
from .memory_sharing import may_share


class Savings(NamedTuple):
    """What an op can save at most by working in place, over all its implementations."""

    #: Bytes, largest first: one entry for each output that may take memory at the same time.
    places: Tuple[int, ...]
    #: Groups of values whose memory may be taken, with the bytes that saves.
    sources: Dict[int, int]
    #: Whether each group is read as one tensor: else two of its blocks might be taken.
    single: bool


class InplaceReuse(NamedTuple):
    """An op that saves memory only by taking that of groups."""

    op: int
    #: As in :class:`Savings`.
    places: Tuple[int, ...]
    #: Groups, with the bytes that are saved when their memory is taken.
    sources: Tuple[Tuple[int, int], ...]

    def unsaved_bytes(self, sources: Iterable[int]) -> int:
        """Bytes of ``places`` that stay where only sources with these savings can be taken."""
        best = sorted(sources, reverse=True)[:len(self.places)]
        return sum(self.places) - sum(best)


def savings(graph: Graph, op: int, implementations: Sequence[Implementation],
            root_of: np.ndarray, sizes: Mapping[int, int], ends: Mapping[int, int]) -> Savings:
    """The savings of one op.

    Parameters
    ----------
    graph : Graph
    op : int
    implementations : sequence of Implementation
        Those that the op may run as.
    root_of : array of int
        Group of each tensor that may share memory for life.
    sizes : mapping
        Bytes of each group that counts.
    ends : mapping
        The op up to which groups that no decision changes are alive: before, none can be taken.

    Returns
    -------
    Savings
    """
    by_implementation: List[List[int]] = []
    sources: Dict[int, int] = {}
    read_as: Dict[int, Set[int]] = {}
    for implementation in implementations:
        best: Dict[int, int] = {}
        for option in implementation.inplace:
            source = implementation.inputs[option.input]
            target = implementation.outputs[option.output]
            root, target_root = int(root_of[source]), int(root_of[target])
            if may_share(graph, source, target) and root != target_root \
                    and ends.get(root, -1) <= op:
                saved = min(sizes[root], sizes[target_root])
                best[target] = max(best.get(target, 0), saved)
                sources[root] = max(sources.get(root, 0), saved)
                read_as.setdefault(root, set()).add(source)
        by_implementation.append(sorted(best.values(), reverse=True))
    # Place by place the largest saving of any implementation.
    places = tuple(max(saved[position] for saved in by_implementation if position < len(saved))
                   for position in range(max(map(len, by_implementation))))
    return Savings(places, sources, all(len(tensors) == 1 for tensors in read_as.values()))


def inplace_reuses(saved: Sequence[Savings], group_of: Mapping[int, int],
            last_need: Mapping[int, int]) -> List[InplaceReuse]:
    """The ops whose every saving takes a group that may be needed later.

    Parameters
    ----------
    saved : sequence of Savings
        By op.
    group_of : mapping
        The group of each group that is one.
    last_need : mapping
        The last op that may need a value of the group.

    Returns
    -------
    list of InplaceReuse
        By op, in order.
    """
    return [InplaceReuse(op, saving.places, tuple((group_of[root], size)
                                         for root, size in sorted(saving.sources.items())))
            for op, saving in enumerate(saved)
            if saving.sources and saving.single
            and all(root in group_of and last_need[root] > op for root in saving.sources)]
