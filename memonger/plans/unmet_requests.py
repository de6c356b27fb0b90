"""Ops that run once, whatever is asked, and why."""
from __future__ import annotations

from typing import Dict, Sequence, Tuple

from ..graph.in_use import effective_ops
from ..graph.schedule import Schedule
from ..graph.types import Graph
from ..util.messages import listed


def run_once(graph: Graph, schedule: Schedule, asked: Sequence[int]) -> Dict[int, str]:
    """Ops of those asked for that no clone runs, each with the reason.

    ``schedule``: a plan's, of this graph.
    ``asked``: ops that were to be recomputed.
    """
    again = set(schedule.recomputed())
    replaced = {op for index in schedule.variants
                for op, _ in graph.variants[index].choices}
    read_late = {tensor for op in effective_ops(graph, schedule.variants) if op.is_backward
                 for position, tensor in enumerate(op.inputs)
                 if position not in op.ignored_inputs}
    reasons = {}
    for number in asked:
        op = graph.ops[number]
        late = {slot for slot, tensor in enumerate(op.outputs) if tensor in read_late}
        if number not in again:
            reasons[number] = (
                "it must not be recomputed: %s" % op.not_recomputable_because if not op.recomputable
                else "a variant is in its place" if number in replaced
                else "backward does not read it" if not late
                else "what backward reads of it stays with its first run"
                if late <= set(op.kept_outputs)
                else "backward reads it right after its last use, so nothing would be freed")
    return reasons


def notes(graph: Graph, schedule: Schedule, asked: Sequence[int]) -> Tuple[str, ...]:
    """A sentence each on ops that no plan recomputes, and on what was asked for in vain."""
    return tuple(filter(None, (_kept(graph), _in_vain(graph, schedule, asked))))


def _in_vain(graph: Graph, schedule: Schedule, asked: Sequence[int]) -> str:
    """:func:`run_once` in a line; empty when all that was asked for is recomputed."""
    reasons = run_once(graph, schedule, asked)
    if not reasons:
        return ""
    return "recompute has no effect on " + listed(
        ["%s (%s)" % (graph.ops[op].name, reason) for op, reason in reasons.items()])


def _kept(graph: Graph) -> str:
    """The ops that no plan of this network recomputes, in a line; empty without any.

    Ops without inputs are left out: no plan would gain from recomputing them.
    """
    kept = ["%s (%s)" % (op.name, op.not_recomputable_because) for op in graph.ops
            if not op.recomputable and op.inputs and not op.is_backward and op.runs]
    if not kept:
        return ""
    return "kept: %s that must not be recomputed: %s" % (
        "1 op" if len(kept) == 1 else "%d ops" % len(kept), listed(kept))
