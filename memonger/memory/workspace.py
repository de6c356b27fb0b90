"""Memory outside the pool that depends on the schedule: workspaces of ops, and their objects."""
from __future__ import annotations

from typing import Optional

from ..graph.in_use import effective_ops
from ..graph.schedule import Schedule
from ..graph.types import Graph


def workspace_bytes(graph: Graph, schedule: Optional[Schedule] = None) -> int:
    """Largest workspace of any op, with the variants of the schedule in use."""
    ops = effective_ops(graph, schedule.variants) if schedule else graph.ops
    return max([op.workspace_bytes for op in ops] or [0])


def objects_bytes(graph: Graph, schedule: Optional[Schedule] = None) -> int:
    """Objects of the executor for the ops that the schedule runs, each as often as it runs."""
    if not graph.objects_bytes_per_op:
        return 0
    runs = len(schedule.steps) if schedule else sum(op.runs for op in graph.ops)
    return graph.objects_bytes_per_op * runs


def outside_pool_bytes(graph: Graph, schedule: Optional[Schedule] = None) -> int:
    """What depends on the schedule beside its pool: workspace and objects."""
    return workspace_bytes(graph, schedule) + objects_bytes(graph, schedule)
