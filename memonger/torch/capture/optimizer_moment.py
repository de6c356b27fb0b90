"""The optimizer's step as the last op of a training step: a moment of the total like others."""
from __future__ import annotations

from dataclasses import replace
from typing import Optional

from ...graph.types import Graph, Op, Tensor
from ...plans.plan import Plan
from ...util.errors import InfeasibleBudget
from ...util.units import format_bytes, format_distinct
from ..pytorch.optimizer import OptimizerBytes
from .captured import TANGENT, Captured

#: Name and kind of the op, which reads nothing: gradients are there to the end anyway.
STEP, _KIND = "optimizer.step", "optimizer"


def with_optimizer(captured: Captured, takes: Optional[OptimizerBytes],
                   plan: Optional[Plan] = None, in_flight: int = 0) -> Captured:
    """The step followed by the optimizer's, or by the one that ``plan`` was made with.

    The gradients of the outputs, which count for the whole step, are gone by then, and so are new
    gradients that were added to older ones. Behind several microbatches ``in_flight`` it is no op
    of one microbatch's graph.
    """
    if plan is not None:
        temporary_bytes = _temporary_bytes(plan.graph)
        held_bytes = plan.fixed_bytes.get("optimizer")
    elif takes is not None:
        gone_bytes = captured.gradient_bytes + sum(
            t.size_bytes for t in captured.graph.tensors if t.category == TANGENT)
        temporary_bytes, held_bytes = takes.temporary_bytes - gone_bytes, takes.held_bytes
    else:
        return captured
    captured = replace(captured, optimizer_bytes=held_bytes)
    if temporary_bytes <= 0:
        return captured
    if in_flight > 1:
        results_bytes = sum(captured.graph.tensors[t].size_bytes for t in captured.graph.outputs)
        return replace(captured, at_optimizer_bytes=temporary_bytes + results_bytes)
    graph = graph_with_step(captured.graph, temporary_bytes)
    return replace(captured, graph=graph, nodes=[*captured.nodes, None],
                   parts=[*captured.parts, []])


def graph_with_step(graph: Graph, temporary_bytes: int) -> Graph:
    """The graph followed by an optimizer's step that takes so much while it runs."""
    made = Tensor(STEP + ":temporary", temporary_bytes, len(graph.ops), "activation", "device",
                  (temporary_bytes,), "uint8")
    op = Op.of(STEP, _KIND, (), (len(graph.tensors),), True,
               not_recomputable_because="a backward op")
    graph = replace(graph, tensors=(*graph.tensors, made), ops=(*graph.ops, op))
    graph.check()
    return graph


def pool_at_optimizer(graph: Graph) -> int:
    """What of the pool the optimizer's step takes: results of the step, and its temporaries."""
    temporary_bytes = _temporary_bytes(graph)
    return temporary_bytes + sum(graph.tensors[t].size_bytes for t in graph.outputs) \
        if temporary_bytes else 0


def check_optimizer(captured: Captured, pool_bytes: int, outside_bytes: int) -> None:
    """Raise InfeasibleBudget where the optimizer's step alone takes more than the pool may have."""
    graph = captured.graph
    taken_bytes = captured.at_optimizer_bytes or pool_at_optimizer(graph)
    temporary_bytes = taken_bytes - sum(graph.tensors[t].size_bytes for t in graph.outputs)
    if not taken_bytes or taken_bytes <= pool_bytes:
        return
    budget_bytes, least_bytes = pool_bytes + outside_bytes, taken_bytes + outside_bytes
    raise InfeasibleBudget(
        "no plan fits %s, as the optimizer's step takes %s, and no plan changes that: parameters, "
        "gradients, the optimizer's state, and %s that it takes while it runs. Ask for at least "
        "that much, or for an optimizer that takes less (fused=True, or foreach=False)"
        % (*format_distinct(budget_bytes, least_bytes), format_bytes(temporary_bytes)),
        budget_bytes, least_bytes, pinned=[(STEP + ":temporary", temporary_bytes)],
        bound_bytes=least_bytes)


def _temporary_bytes(graph: Graph) -> int:
    """What the optimizer's step takes besides its results; 0 where the graph has none."""
    last = graph.ops[-1] if graph.ops else None
    return sum(graph.tensors[t].size_bytes for t in last.outputs) \
        if last is not None and last.kind == _KIND else 0
