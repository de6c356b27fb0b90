"""Values that torchtitan's ``graph_trainer`` can move to the host, and where it does."""
from __future__ import annotations

from typing import Dict, List, Mapping, Set

import torch.fx as fx

from ...graph.offload import Move, with_moves, worth_moving
from ..capture import transfers
from ..capture.captured import Captured
from ..pytorch import private_joint
from ..rewrite.offload import movable, with_laid
from .titan_graph import name_sums


def with_copies(captured: Captured, gm: fx.GraphModule, bytes_per_s: float,
                places: Mapping[str, int]) -> Captured:
    """The step with an offer to move each value that the engine moves, as it places the copies.

    ``gm``: the engine's graph, which stays as it is. ``places``: as its pass is told.
    """
    from torchtitan.experiments.graph_trainer.cpu_offload import _can_offload_node
    graph = captured.graph
    first = next(i for i, op in enumerate(graph.ops) if op.is_backward)
    forward = [i for i, t in enumerate(graph.tensors) if 0 <= t.producer < first]
    nodes = {tensor: node for tensor, node in movable(captured).items()
             if graph.tensors[tensor].producer < first and _can_offload_node(node)
             and tensor not in graph.output_set
             and any(reader >= first for reader in graph.consumers[tensor])}
    values = {tensor: nodes[tensor] for tensor in worth_moving(graph, forward, list(nodes))}
    moves = _placed(captured, gm, {node.name: tensor for tensor, node in values.items()}, places)
    return with_laid(captured, with_moves(graph, moves, bytes_per_s), values)


def copies_inserted(gm: fx.GraphModule, places: Mapping[str, int]) -> fx.GraphModule:
    """The graph with the copies of the nodes that are marked for them."""
    from torchtitan.experiments.graph_trainer.cpu_offload import apply_cpu_offload_pass
    return apply_cpu_offload_pass(gm, **places)


def _placed(captured: Captured, gm: fx.GraphModule, wanted: Mapping[str, int],
            places: Mapping[str, int]) -> List[Move]:
    """Where the engine issues the copies of nodes, by name, and waits for them."""
    trial = private_joint.copied(gm)
    name_sums(trial)
    for node in trial.graph.nodes:
        node.meta.pop("recompute", None)
        if node.name in wanted:
            node.meta["recompute"] = private_joint.decision(False, to_host=True)
    try:
        copies_inserted(trial, places)
    except RuntimeError:
        # torchtitan 0.3.0 lets some waits name what comes after them, behind ops with several
        # results.
        early = _waits_too_early(trial)
        if not early:
            raise
        return _placed(captured, gm, {n: t for n, t in wanted.items() if n not in early}, places)
    op_of = {node.name: op for node, op in captured.ops_by_node.items()}
    before: Dict[fx.Node, int] = {}
    passed = 0
    for node in trial.graph.nodes:
        passed = max(passed, op_of.get(node.name, -1) + 1)
        before[node] = passed
    graph, moves = captured.graph, []
    held_by = {node.name: held for node, held in captured.tensors_of.items()}
    first = next(i for i, op in enumerate(graph.ops) if op.is_backward)
    for store in [node for node in before if transfers.is_to_host(node)]:
        tensor = wanted[store.args[0].name]
        wait = next(u for u in store.users if transfers.is_wait(u))
        fetch = next(u for u in wait.users if transfers.is_copy(u))
        late = [reader for reader in graph.consumers[tensor] if reader >= first]
        last = max((r for r in graph.consumers[tensor] if r < first), default=-1)
        # The wait names what it must come after, which stays as long.
        held = {t for t in held_by.get(wait.args[-1].name, ()) if t is not None and t != tensor
                and graph.tensors[t].pooled and 0 <= graph.tensors[t].producer < before[wait]}
        if late and before[wait] <= before[fetch] and before[wait] > last:
            moves.append(Move(tensor, before[store], before[wait],
                              min(before[fetch], late[0]), late[0], tuple(sorted(held))))
    return moves


def _waits_too_early(gm: fx.GraphModule) -> Set[str]:
    """Names of the nodes whose copies are waited for before something that the wait names."""
    made: Set[fx.Node] = set()
    early: Set[str] = set()
    for node in gm.graph.nodes:
        if transfers.is_wait(node) and not made.issuperset(node.all_input_nodes):
            early.add(node.args[1].name)
        made.add(node)
    return early
