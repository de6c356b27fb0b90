"""The ways an op can run: as in the graph, or as one of the variants runs it."""
from __future__ import annotations

from dataclasses import dataclass
from typing import List, Sequence, Tuple

from ...graph.types import Graph, Inplace


@dataclass(frozen=True)
class Mode:
    """One way an op runs: as in the graph (``variant`` -1), or as a variant runs it."""

    op: int
    variant: int
    #: Tensors that are really read; ignored inputs are left out.
    reads: Tuple[int, ...]
    writes: Tuple[int, ...]
    time_s: float
    inplace: Tuple[Inplace, ...]
    inputs: Tuple[int, ...]
    outputs: Tuple[int, ...]
    ignored: Tuple[int, ...] = ()
    runs: bool = True
    adds_into_first: bool = False


def allowed_variants(graph: Graph, which: str) -> Tuple[int, ...]:
    """Variants that ``Options.variants`` lets a plan use."""
    if which == "none":
        return ()
    return tuple(i for i, v in enumerate(graph.variants) if which == "all" or v.exact)


def modes_of(graph: Graph, variants: Sequence[int]) -> List[List[Mode]]:
    """All modes of each op, the op's own first."""
    modes: List[List[Mode]] = []
    for index, op in enumerate(graph.ops):
        ignored = set(op.ignored_inputs)
        reads = tuple(sorted({t for i, t in enumerate(op.inputs) if i not in ignored}))
        modes.append([Mode(index, -1, reads, op.outputs, op.time_s, op.inplace,
                           op.inputs, op.outputs, op.ignored_inputs, not op.placeholder,
                           op.adds_into_first)])
    for number in variants:
        for index, how in graph.implementations_of(number):
            ignored = set(how.ignored_inputs)
            reads = tuple(sorted({t for i, t in enumerate(how.inputs) if i not in ignored}))
            if how.runs:
                modes[index].append(Mode(index, number, reads, how.outputs, how.time_s,
                                         how.inplace, how.inputs, how.outputs,
                                         how.ignored_inputs,
                                         adds_into_first=how.adds_into_first))
            else:
                modes[index].append(Mode(index, number, (), (), 0.0, (), (), (), (), False))
    return modes
