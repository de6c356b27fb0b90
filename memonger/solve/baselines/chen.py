"""Method "chen": the sqrt(n) rule.

Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174,
2016), section 3: cut the n forward ops into about sqrt(n) segments of equal length, keep what
crosses from one segment to a later one, run the rest again in backward, each op once. On a chain of
equal ops this takes O(sqrt(n)) memory for one extra forward pass. It looks at neither bytes nor
times and has no budget: where the result does not fit, ``solve`` says so.
"""
from __future__ import annotations

import math
from typing import Dict, List, Optional, Sequence

from ...graph.schedule import Consumer, expand
from ...graph.types import Graph
from ...plans.plan import Plan
from ..options import Options
from ..result import build_plan


def forward_ops(graph: Graph) -> List[int]:
    """Ids of the forward ops, in order."""
    return [index for index, op in enumerate(graph.ops) if not op.is_backward]


def last_forward_use(graph: Graph, op: int) -> int:
    """The last forward op that reads a value of ``op``; itself when there is none."""
    readers = [reader for tensor in graph.ops[op].outputs for reader in graph.consumers[tensor]
               if not graph.ops[reader].is_backward]
    return max(readers, default=op)


def recompute_inside(graph: Graph, cuts: Sequence[int],
                     options: Options) -> Dict[int, Dict[Consumer, int]]:
    """Run again what stays inside a segment; each segment ends with the ops in ``cuts``."""
    segment: Dict[int, int] = {}
    number, ends = 0, set(cuts)
    keep, again = set(options.keep), set(options.recompute)
    for op in forward_ops(graph):
        segment[op] = number
        number += op in ends
    return {op: {} for op in segment
            if graph.ops[op].recomputable and op not in keep
            and (segment[last_forward_use(graph, op)] == segment[op] or op in again)}


def solve(graph: Graph, budget_bytes: Optional[int], options: Options) -> Plan:
    """The signature of all solvers; see :func:`memonger.solve.solve`. O(edges) time."""
    ops = forward_ops(graph)
    length = max(1, math.isqrt(max(len(ops) - 1, 0)) + 1)
    cuts = ops[length - 1::length]
    schedule = expand(graph, recompute_inside(graph, cuts, options))
    return build_plan(graph, schedule, "chen", options, budget_bytes,
                      notes=("%d segments of %d ops" % (-(-len(ops) // length), length),))
