"""Variants by their implementations, before these are numbered among those of their ops."""
from __future__ import annotations

from dataclasses import replace
from typing import List, NamedTuple, Sequence, Tuple

from .types import Graph, Implementation, Variant


class Offer(NamedTuple):
    """A variant and its implementations; fields as those of :class:`Variant`."""

    name: str
    op: int
    #: Pairs of op and the implementation that the variant chooses for it.
    implementations: Tuple[Tuple[int, Implementation], ...]
    exact: bool = True


def offering(graph: Graph, offers: Sequence[Offer]) -> Graph:
    """The graph with these variants after its own.

    O(size of the graph and of the offers) time.
    """
    implementations = [list(op.implementations) for op in graph.ops]
    variants: List[Variant] = []
    for offer in offers:
        choices = []
        for op, implementation in offer.implementations:
            choices.append((op, len(implementations[op])))
            implementations[op].append(implementation)
        variants.append(Variant(offer.name, offer.op, tuple(choices), offer.exact))
    ops = tuple(replace(op, implementations=tuple(own))
                if len(own) > len(op.implementations) else op
                for op, own in zip(graph.ops, implementations))
    return replace(graph, ops=ops, variants=graph.variants + tuple(variants))
