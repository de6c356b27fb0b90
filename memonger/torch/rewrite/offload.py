"""Values of a traced step that may lie on the host between forward and backward."""
from __future__ import annotations

import operator
from dataclasses import replace
from typing import Dict, List, Mapping, Optional

import torch
import torch.fx as fx

from ...graph.offload import FETCH, GATE, STORE, WAIT, Offloading, with_offers
from ...graph.types import Graph
from ..capture.captured import Captured
from ..capture.layouts import strides_of
from ..pytorch import private_copies, private_joint


def with_offload(captured: Captured, bytes_per_s: float,
                 like: Optional[Graph] = None) -> Captured:
    """The step, its graph offering to move values at this speed, one way.

    ``like``: the graph of a plan to follow, by whose times copies are issued.
    """
    times = {} if like is None else {op.name: op.time_s for op in like.ops}
    graph = captured.graph.with_times([times.get(op.name, op.time_s) for op in captured.graph.ops])
    values = movable(captured)
    return with_laid(captured, with_offers(graph, bytes_per_s, values.__contains__), values)


def movable(captured: Captured) -> Dict[int, fx.Node]:
    """The tensors that can go to the host and come back, each with the node that it is."""
    values: Dict[int, fx.Node] = {}
    for node, held in captured.tensors_of.items():
        if (node in captured.ops_by_node or node.target is operator.getitem) and len(held) == 1 \
                and held[0] is not None and private_copies.can_move(node.meta.get("val")):
            values.setdefault(held[0], node)
    return values


def with_laid(captured: Captured, laid: Offloading, value_nodes: Mapping[int, fx.Node]) -> Captured:
    """The step with a graph that offers to move values, each the value of a node."""
    nodes = captured.nodes
    new = {old: op for op, old in enumerate(laid.before) if old is not None}
    added = range(len(captured.graph.tensors), len(laid.graph.tensors))
    sizes = [*captured.sizes, *(captured.sizes[laid.value_of[t]] for t in added)]
    return replace(
        captured, graph=laid.graph, nodes=[None if op is None else nodes[op] for op in laid.before],
        parts=[[] if op is None else captured.parts[op] for op in laid.before], sizes=sizes,
        temporaries={new[op]: taken for op, taken in captured.temporaries.items()},
        moves=laid.part_of, value_of=laid.value_of, value_nodes=value_nodes)


def written_copy(graph: fx.Graph, kind: str, read: List[fx.Node], value: fx.Node,
                 in_backward: bool, arranged: bool) -> fx.Node:
    """A new node for an op of a move, which reads ``read``.

    ``value``: the node of the joint graph whose value it is about. ``arranged``: Inductor lays such
    values with their channels last.
    """
    ops, example = torch.ops.memonger, value.meta["val"]
    strides = strides_of(example, arranged)
    call, more = {
        STORE: (ops.store, (strides,)), WAIT: (ops.wait, ()), GATE: (ops.arrived, ()),
        FETCH: (ops.fetch, (list(example.shape), strides, example.device))}[kind]
    operands = (*read, *more)
    made = graph.call_function(call.default, operands)
    with example.fake_mode:
        made.meta = {"val": call.default(*fx.node.map_arg(operands, lambda n: n.meta["val"]))}
    private_joint.place(made, in_backward)
    return made
