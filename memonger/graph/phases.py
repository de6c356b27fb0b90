"""Phases of a step: forward passes and backward passes, one after the other.

An ordinary step has one of each. Parts of a network that are differentiated on their own give
steps with more ops in each phase (first forward, second forward, second backward, first backward);
losses of a GAN or accumulated batches give more phases (forward, backward, forward, backward).
Whatever the phases are, a plan repeats forward ops only in front of backward ops, and forward ops
read first runs.
"""
from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple

from .records import Op


class Phase(NamedTuple):
    """A forward or backward pass: the ops from ``first_op`` up to the next phase."""

    name: str
    first_op: int
    is_backward: bool


def phases_of(ops: Sequence[Op]) -> Tuple[Phase, ...]:
    """The phases of ops in the order of their execution, numbered from the second of a kind on."""
    phases: List[Phase] = []
    for index, op in enumerate(ops):
        if not phases or phases[-1].is_backward != op.is_backward:
            earlier = sum(phase.is_backward == op.is_backward for phase in phases)
            kind = "backward" if op.is_backward else "forward"
            name = "%s %d" % (kind, earlier + 1) if earlier else kind
            phases.append(Phase(name, index, op.is_backward))
    return tuple(phases)
