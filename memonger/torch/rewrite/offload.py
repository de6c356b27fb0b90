"""Values of a traced step that may lie on the host between forward and backward."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List

import torch.fx as fx

from ...graph.offload import FETCH, GATE, STORE, WAIT, with_offers
from ..capture.captured import Captured
from ..pytorch import private_copies, private_joint


def with_offload(captured: Captured, bytes_per_s: float) -> Captured:
    """The step, its graph offering to move values at this speed, one way."""
    graph, nodes = captured.graph, captured.nodes

    def may_move(tensor: int) -> bool:
        node = nodes[graph.tensors[tensor].producer]
        return node is not None and private_copies.can_move(node.meta.get("val"))
    laid = with_offers(graph, bytes_per_s, may_move)
    new = {old: op for op, old in enumerate(laid.before) if old is not None}
    added = range(len(graph.tensors), len(laid.graph.tensors))
    sizes = [*captured.sizes, *(captured.sizes[laid.value_of[t]] for t in added)]
    return replace(
        captured, graph=laid.graph, nodes=[None if op is None else nodes[op] for op in laid.before],
        parts=[[] if op is None else captured.parts[op] for op in laid.before], sizes=sizes,
        temporaries={new[op]: taken for op, taken in captured.temporaries.items()},
        moves=laid.part_of, value_of=laid.value_of)


def written_copy(graph: fx.Graph, kind: str, read: List[fx.Node], value: fx.Node,
                 in_backward: bool, device: str, moved: bool) -> fx.Node:
    """The node of an op of a move, which reads what ``read`` says.

    ``value``: the node of the joint graph whose value it is about. ``moved``: it was fetched.
    """
    if kind == GATE and not moved:
        return read[0]
    call: Dict[str, Any] = {STORE: private_copies.store, WAIT: private_copies.wait,
                            FETCH: private_copies.fetch, GATE: private_copies.arrived}
    made = graph.call_function(call[kind], (*read, *([device] if kind == FETCH else ())))
    example = value.meta["val"]
    if kind in (STORE, WAIT):
        with example.fake_mode:
            example = example.cpu()
    made.meta = {"val": example}
    private_joint.place(made, in_backward)
    return made
