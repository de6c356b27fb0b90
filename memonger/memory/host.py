"""Memory of the host that a schedule takes: what ``Tensor.space`` "host" counts."""
from __future__ import annotations

from itertools import accumulate
from typing import Dict, List, Optional, Tuple

from ..graph.in_use import effective_ops
from ..graph.schedule import Schedule
from ..graph.types import Graph


def host_bytes(graph: Graph, schedule: Schedule) -> int:
    """The most bytes of host tensors that are alive at a step."""
    return max(host_timeline(graph, schedule), default=0)


def host_timeline(graph: Graph, schedule: Schedule) -> List[int]:
    """Bytes of host tensors that are alive at each step; empty where the graph has none.

    A value lives from the step that makes it to the last one that reads it, or to the end as an
    output of the network; a tensor that exists before the step lives all the time.
    O(size of the schedule) time.
    """
    if not graph.host_tensors:
        return []
    tensors, ops = graph.tensors, effective_ops(graph, schedule.variants)
    last: Dict[Tuple[int, int], int] = {}
    for index, step in enumerate(schedule.steps):
        op = ops[step.op]
        last.update({(index, t): len(schedule.steps) if t in graph.output_set else index
                     for t in op.outputs if t in graph.host_tensors})
        for position, (tensor, source) in enumerate(zip(op.inputs, step.sources)):
            if (source, tensor) in last and position not in op.ignored_inputs:
                last[source, tensor] = max(last[source, tensor], index)
    change = [0] * (len(schedule.steps) + 2)
    change[0] = sum(tensors[t].size_bytes for t in graph.host_tensors if tensors[t].producer < 0)
    for (made, tensor), end in last.items():
        change[made] += tensors[tensor].size_bytes
        change[end + 1] -= tensors[tensor].size_bytes
    return list(accumulate(change[:len(schedule.steps)]))


def keeps_host(graph: Graph, schedule: Schedule, budget_bytes: Optional[int]) -> bool:
    """Whether a schedule takes no more of the host than a budget; None is no limit."""
    return budget_bytes is None or host_bytes(graph, schedule) <= budget_bytes
