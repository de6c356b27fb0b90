"""Proven lower bounds of the memory that plans need, and what lies outside the pool in all.

They hold for every schedule and storage assignment, as those of :mod:`memonger.solve.mip.bounds`.
"""
from __future__ import annotations

from typing import NamedTuple, Optional

import numpy as np

from ...graph.cache import Cache
from ...graph.types import Graph
from ..effort import Effort
from . import highs
from .formulation import build
from .implementations import allowed_variants
from .live_bytes import most_operands, needed_live
from .operands import OperandSearch
from .problem import Reduced
from .program import integer_columns

#: How many ops, those that need most, have their operands brought together for the bound.
_OPERAND_OPS = 16
#: How many states of memory are looked at for each of them.
_OPERAND_STATES = 500
#: How many ops the 0/1 program for the smallest peak constrains.
_PEAK_OPS = 16
#: How often HiGHS asks at most whether to go on with that program.
_PEAK_CHECKS = 25
#: Counted seconds for that program where no effort is given.
_PEAK_S = 4.0
#: Up to so many groups of values there is such a program.
_PEAK_GROUPS = 1500


class PeakBound(NamedTuple):
    """Bytes that no plan can do without, and where; with workspace beyond the least."""

    bytes: int
    how: str
    #: The op during which they are alive.
    op: int


#: By variants and the ops that may run again.
_PEAKS: Cache[PeakBound] = Cache()


def pool_limit_bytes(graph: Graph, limit_bytes: int, variants: str) -> int:
    """What of the bytes for pool, workspace and objects the pool of any plan may take at most."""
    return limit_bytes - least_outside_pool_bytes(graph, variants)


def least_outside_pool_bytes(graph: Graph, variants: str) -> int:
    """Workspace and objects that every plan takes."""
    least = [op.workspace_bytes for op in graph.ops]
    runs = [op.runs for op in graph.ops]
    for number in allowed_variants(graph, variants):
        for op, implementation in graph.implementations_of(number):
            least[op] = min(least[op], implementation.workspace_bytes)
            runs[op] = runs[op] and implementation.runs
    return max(least or [0]) + graph.objects_bytes_per_op * sum(runs)


def minimum_peak_bound(reduced: Reduced, most_groups: Optional[int] = None,
                       effort: Optional[Effort] = None) -> PeakBound:
    """Bytes of pooled tensors that no plan of the class can do without.

    Graphs of more than ``most_groups`` values (None: ``_PEAK_GROUPS``) get no 0/1 program.
    ``effort``: the work for that; none where it is not enough for the linear program that it begins
    with.
    """
    if not reduced.num_ops:
        return PeakBound(0, "none", -1)
    best = _of_operands(reduced)
    # Variants make the difference: what one takes from an op it gives to others.
    most_groups = _PEAK_GROUPS if most_groups is None else most_groups
    if not highs.available() or not reduced.variants \
            or not 0 < len(reduced.size_bytes) <= most_groups:
        return best
    worst_ops = np.argsort(-most_operands(reduced), kind="stable")[:_PEAK_OPS]
    constrained = sorted(int(op) for op in worst_ops)
    program = build(reduced, constrained, float("inf"))
    effort = effort or Effort(_PEAK_S)
    if highs.linear_s(program) > effort.left_s:
        return best
    solution = highs.solve_integer(program, integer_columns(program), effort,
                                gap=1e-4, max_checks=_PEAK_CHECKS)
    proven = solution.bound * program.frame.unit_bytes * (1 - 1e-6)
    if np.isfinite(proven) and proven > best.bytes + 0.5:
        best = PeakBound(int(np.ceil(proven - 0.5)),
                         "integer, %d constrained" % len(constrained), best.op)
    return best


def _of_operands(reduced: Reduced) -> PeakBound:
    """What bringing the operands of one op together takes, the same for every budget."""
    return _PEAKS.of(reduced.graph, (reduced.variants, reduced.again.tobytes()),
                     lambda: _brought_together(reduced))


def _brought_together(reduced: Reduced) -> PeakBound:
    needed = needed_live(reduced)
    where = int(np.argmax(needed))
    best = PeakBound(int(np.ceil(needed[where] - 1e-6)), "operands of one op", where)
    search = OperandSearch(reduced)
    for op in np.argsort(-needed, kind="stable")[:_OPERAND_OPS].tolist():
        proven = search.least_bytes(op, _OPERAND_STATES)
        if proven > best.bytes:
            best = PeakBound(int(np.ceil(proven - 1e-6)), "operands brought together", op)
    return best
