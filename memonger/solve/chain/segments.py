"""A training step cut into segments at the places where little crosses.

A *boundary* is a place in the forward order that the values of few ops cross and whose gradients
part in the same way: the backward ops of everything behind it run before those of everything in
front of it. A *segment* lies between two boundaries. Its own planning problem is a graph of its
forward ops, one op that stands for the rest of the network, and its backward ops.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Dict, Iterator, List, Sequence, Set, Tuple

from ...graph.offers import Offer, offering
from ...graph.types import Graph, Implementation, Op, Tensor

#: A chain has at least this many boundaries; else values of more ops may cross one.
_FEWEST = 6
#: Values of at most so many ops cross a boundary.
_MOST_VALUES = 12
#: Values below this share of the largest one's bytes in forward do not count as crossing.
_LITTLE = 1e-3
#: Above this many boundaries those with the fewest bytes of each stretch stay.
_MOST = 64
#: A segment reaches over this many boundaries at most.
_MOST_UNITS = 6
#: A segment that reaches over more than one boundary has at most so many forward ops.
_MOST_OPS = 48


@dataclass(frozen=True)
class Boundary:
    """A place to cut at."""

    #: The first forward op behind it, and the first backward op of what is in front of it.
    forward: int
    backward: int
    #: Bytes of what the ops make whose values cross it.
    size_bytes: int


@dataclass(frozen=True)
class Segment:
    """Ops ``forward`` and ``backward`` of a graph, as a graph of their own."""

    #: Numbers of its boundaries in the chain.
    begin: int
    end: int
    #: Ids of its ops in the whole graph, by id here; -1 for the op that stands for the rest.
    ops: Tuple[int, ...]
    #: The op that stands for the rest: reads what leaves the segment, makes its gradients.
    middle: int
    graph: Graph
    #: Variants of the whole graph, by number here.
    variants: Tuple[int, ...]

    @property
    def forward_s(self) -> float:
        """Time of its forward ops, seconds."""
        return sum(op.time_s for op in self.graph.ops[:self.middle])

    @property
    def gradient_bytes(self) -> int:
        """What its backward starts with."""
        return sum(self.graph.tensors[t].size_bytes for t in self.graph.ops[self.middle].outputs)

    @cached_property
    def shape(self) -> Tuple[object, ...]:
        """Equal for segments that are planned alike."""
        graph = self.graph
        return (tuple((t.size_bytes, t.producer, t.space) for t in graph.tensors),
                tuple((op.inputs, op.outputs, op.inplace, op.ignored_inputs, op.kept_outputs,
                       op.recomputable, op.time_s) for op in graph.ops),
                tuple((v.exact, graph.implementations_of(number))
                      for number, v in enumerate(graph.variants)), graph.outputs)


def find_boundaries(graph: Graph) -> List[Boundary]:
    """Where the chain can be cut, in order; the begin of the network, and not its end.

    A chain is one forward and one backward pass: a step of more phases is not cut.

    O(number of edges) time.
    """
    count = graph.first_backward
    if len(graph.phases) > 2:
        return [Boundary(0, len(graph.ops), 0)]
    crossing, crossing_bytes = [0] * (count + 1), [0] * (count + 1)
    # All outputs of an op stay or go together.
    made = [[t for position, t in enumerate(op.outputs)
             if graph.tensors[t].pooled and position not in op.kept_outputs]
            for op in graph.ops[:count]]
    sizes = [sum(graph.tensors[t].size_bytes for t in tensors if graph.consumers[t])
             for tensors in made]
    little_bytes = _LITTLE * max(sizes, default=0)
    for number, (tensors, size) in enumerate(zip(made, sizes)):
        last = max([reader for t in tensors for reader in graph.consumers[t] if reader < count],
                   default=number)
        if last > number and size:
            for change, cut in ((1, number + 1), (-1, last + 1)):
                crossing[cut] += change * (size > little_bytes)
                crossing_bytes[cut] += change * size
    for cut in range(count):
        crossing[cut + 1] += crossing[cut]
        crossing_bytes[cut + 1] += crossing_bytes[cut]
    cuts = _aligned(graph)
    narrow = [cut for cut in cuts if crossing_bytes[cut] and crossing[cut] <= _MOST_VALUES]
    most = 1
    while most < _MOST_VALUES and sum(crossing[cut] <= most for cut in narrow) < _FEWEST:
        most += 1
    chosen = [cut for cut in narrow if crossing[cut] <= most]
    if len(chosen) >= _MOST:
        edges = [len(chosen) * i // (_MOST - 1) for i in range(_MOST)]
        chosen = [min(chosen[a:b], key=lambda cut: (crossing_bytes[cut], cut))
                  for a, b in zip(edges, edges[1:])]
    return [Boundary(0, len(graph.ops), 0)] + [
        Boundary(cut, cuts[cut], crossing_bytes[cut]) for cut in chosen]


def _aligned(graph: Graph) -> Dict[int, int]:
    """Places in forward whose gradients part alike, with the first backward op in front of them."""
    count, end = graph.first_backward, len(graph.ops)
    last, first = [-1] * (count + 1), [end] * (count + 1)
    for number in range(count, end):
        for made, needed in _lives_in_forward(graph, number):
            last[made] = max(last[made], number)
            first[needed] = min(first[needed], number)
    for cut in reversed(range(count)):
        last[cut] = max(last[cut], last[cut + 1])
    aligned: Dict[int, int] = {}
    earliest = end
    for cut in range(1, count):
        earliest = min(earliest, first[cut - 1])
        if -1 < last[cut] < earliest < end:
            aligned[cut] = earliest
    return aligned


def _lives_in_forward(graph: Graph, number: int) -> Iterator[Tuple[int, int]]:
    """Where in forward lies what a backward op belongs to: its own op, twice.

    Where the graph does not name that, for each value that it reads the op that makes it and the
    last one that reads it: it belongs behind what lies before the first, and in front of what lies
    behind the last.
    """
    op, count = graph.ops[number], graph.first_backward
    if 0 <= op.forward_op < count:
        yield op.forward_op, op.forward_op
        return
    for tensor in op.inputs:
        made = graph.tensors[tensor].producer
        if 0 <= made < count:
            yield made, max((reader for reader in graph.consumers[tensor] if reader < count),
                            default=made)


def segments_of(graph: Graph, boundaries: Sequence[Boundary]) -> List[Segment]:
    """All segments that reach over a few boundaries."""
    cutter = _Cutter(graph)
    ends = [*boundaries, Boundary(graph.first_backward, graph.first_backward, 0)]
    segments: List[Segment] = []
    for begin, start in enumerate(ends[:-1]):
        for end in range(begin + 1, min(begin + _MOST_UNITS, len(boundaries)) + 1):
            if end > begin + 1 and ends[end].forward - start.forward > _MOST_OPS:
                break
            segments.append(cutter.cut(begin, end, range(start.forward, ends[end].forward),
                                    range(ends[end].backward, start.backward)))
    return segments


class _Cutter:
    """Cuts segments out of one graph."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.first_backward = graph.first_backward
        #: What each tensor is to a segment that does not make it.
        self.outside: Dict[int, Tensor] = {}
        self.variants_of: Dict[int, List[int]] = {}
        for number, variant in enumerate(graph.variants):
            self.variants_of.setdefault(variant.choices[0][0], []).append(number)

    def cut(self, begin: int, end: int, forward: range, backward: range) -> Segment:
        graph, middle = self.graph, len(forward)
        new = {op: number for number, op in enumerate(forward)}
        new.update({op: middle + 1 + number for number, op in enumerate(backward)})
        variants = tuple(sorted(
            number for op in new for number in self.variants_of.get(op, ())
            if all(touched in new for touched, _ in graph.variants[number].choices)))
        runs = [graph.ops[op].implementations[0] for op in new]
        runs += [other for v in variants for _, other in graph.implementations_of(v)]
        tensors = sorted({t for run in runs for t in run.inputs + run.outputs})
        number_of = {tensor: number for number, tensor in enumerate(tensors)}
        made_by_rest = {t for t in tensors
                        if self.first_backward <= graph.tensors[t].producer < backward.start}

        def leaves(tensor: int) -> bool:
            return any(reader not in new for reader in graph.consumers[tensor])

        read_by_rest = [t for op in forward for t in graph.ops[op].outputs if leaves(t)]
        outputs: Set[int] = {t for op in new for t in graph.ops[op].outputs
                             if t in graph.output_set}
        outputs |= {t for op in backward for t in graph.ops[op].outputs if leaves(t)}
        outputs |= {t for t in made_by_rest if t in graph.output_set or
                    any(reader >= backward.stop for reader in graph.consumers[t])}
        records = []
        for tensor in tensors:
            record = graph.tensors[tensor]
            made_by = middle if tensor in made_by_rest else new.get(record.producer, -1)
            if made_by < 0:
                records.append(self._outside(tensor))
            elif record.pooled:
                records.append(replace(record, producer=made_by,
                                       storage_of=number_of.get(record.storage_of, -1)))
            else:
                records.append(replace(self._outside(tensor), producer=made_by))

        def renumbered(ids: Sequence[int]) -> Tuple[int, ...]:
            return tuple(number_of[t] for t in ids)

        def handed_on(tensor: int) -> int:
            inside = tensor >= 0 and graph.tensors[tensor].producer in new
            return number_of[tensor] if inside else -1

        def moved(own: Implementation) -> Implementation:
            return replace(own, inputs=renumbered(own.inputs), outputs=renumbered(own.outputs))

        ops = [replace(graph.ops[op], implementations=(moved(graph.ops[op].implementations[0]),),
                       control_deps=(), forward_op=new.get(graph.ops[op].forward_op, -1),
                       hands_on=handed_on(graph.ops[op].hands_on))
               for op in new]
        rest = Op.of("rest", "rest", renumbered(read_by_rest), renumbered(sorted(made_by_rest)),
                     is_backward=True, not_recomputable_because="it stands for other segments")
        chosen = [Offer(graph.variants[v].name, new.get(graph.variants[v].op, 0), tuple(
            (new[op], moved(other)) for op, other in graph.implementations_of(v)),
            graph.variants[v].exact)
            for v in variants]
        alone = Graph(tuple(records), (*ops[:middle], rest, *ops[middle:]),
                      renumbered(sorted(outputs)), name=graph.name, pools=graph.pools)
        return Segment(begin, end, (*forward, -1, *backward), middle, offering(alone, chosen),
                       variants)

    def _outside(self, tensor: int) -> Tensor:
        if tensor not in self.outside:
            self.outside[tensor] = replace(self.graph.tensors[tensor], producer=-1, space="outside",
                                           size_bytes=0, shape=(), storage_of=-1)
        return self.outside[tensor]
