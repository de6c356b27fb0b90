"""The implementations of each op that a plan may choose among."""
from __future__ import annotations

from typing import List, Sequence, Tuple

from ...graph.types import Graph, Implementation

#: By op and number, the framework's own first.
Implementations = List[List[Implementation]]


def allowed_variants(graph: Graph, which: str) -> Tuple[int, ...]:
    """Variants that ``Options.variants`` lets a plan use."""
    if which == "none":
        return ()
    return tuple(i for i, v in enumerate(graph.variants) if which == "all" or v.exact)


def implementations_in(graph: Graph,
                       variants: Sequence[int]) -> Tuple[Implementations, List[List[int]]]:
    """Implementations that these variants choose, numbered anew, and the variant of each.

    The first is the op's own, which is that of variant -1.
    """
    implementations = [[op.implementations[0]] for op in graph.ops]
    variant_of = [[-1] for _ in graph.ops]
    for variant in variants:
        for op, implementation in graph.implementations_of(variant):
            implementations[op].append(implementation)
            variant_of[op].append(variant)
    return implementations, variant_of
