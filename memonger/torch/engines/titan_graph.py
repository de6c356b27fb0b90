"""The graph of a step that torchtitan's ``graph_trainer`` traces, as planning sees it."""
from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any, Dict, Mapping, Set

import torch
import torch.fx as fx

from ..capture.captured import INPUT, PARAMETER, Captured
from ..capture.reading import read
from ..pytorch import private_joint

#: Modules whose ops the engine runs once: its pass for recomputation begins behind the last of
#: them, for it knows one backward region.
_ONCE = ("lm_head", "loss")


def read_step(gm: fx.GraphModule, rates: Mapping[str, float] = MappingProxyType({}),
              costs: str = "auto") -> Captured:
    """The engine's graph as planning sees it. It stays as it is.

    What the engine runs once counts as forward, and backward begins behind it: only from there on
    does anything run again.
    """
    joint = private_joint.copied(gm)
    name_sums(joint)
    once = names_run_once(joint)
    for node in joint.graph.nodes:
        node.meta.pop("recompute", None)
        private_joint.mark_phase(node, node.name not in once and is_backward(node))
    trained, inputs = trained_inputs(joint), joint.graph.find_nodes(op="placeholder")
    captured = read(joint, 1, [PARAMETER if n.name in trained else INPUT for n in inputs],
                    costs=costs, rates=rates)
    reason = "the engine runs nothing of the output layer and the loss again"
    graph = captured.graph
    ops = tuple(replace(
        op, kept_outputs=(), not_recomputable_because=op.not_recomputable_because or (
            reason if node is not None and node.name in once else ""))
        for op, node in zip(graph.ops, captured.nodes))
    return replace(captured, graph=replace(graph, ops=ops))


def names_run_once(gm: fx.GraphModule) -> Set[str]:
    """Nodes up to the last of the loss and the output layer that are backward or theirs."""
    nodes = list(gm.graph.nodes)
    last = max((k for k, node in enumerate(nodes) if module_of(node) in _ONCE), default=-1)
    return {node.name for k, node in enumerate(nodes)
            if k <= last and is_backward(node) or module_of(node).startswith(_ONCE)}


def name_sums(gm: fx.GraphModule) -> None:
    """Take the loss's name off sums of gradients of layers.

    With torchtitan 0.3.0 and PyTorch 2.15 they have it, as autograd counts them with the last
    forward op. The pass for recomputation, which begins behind the last op of the loss, then does
    nothing.
    """
    of_layers: Dict[fx.Node, str] = {}
    for node in gm.graph.nodes:
        if not is_backward(node):
            continue
        behind = next((of_layers[i] for i in node.all_input_nodes if i in of_layers), None)
        if module_of(node) and module_of(node) not in _ONCE:
            of_layers[node] = module_of(node)
        elif behind is not None:
            of_layers[node] = behind
            node.meta["custom"] = {**node.meta.get("custom", {}), "module_fqn": behind}


def module_of(node: fx.Node) -> str:
    return node.meta.get("custom", {}).get("module_fqn", "")


def is_backward(node: fx.Node) -> bool:
    return bool(node.meta.get("autograd_backward"))


def trained_inputs(gm: fx.GraphModule) -> Dict[str, Any]:
    """The inputs that gradients are taken of, by name: the outputs behind the loss, in order.

    Behind each sharded tensor comes its mesh, on both sides.
    """
    gradients = [value.meta["val"] for value in gm.graph.output_node().args[0][1:]
                 if isinstance(value, fx.Node) and isinstance(value.meta["val"], torch.Tensor)]
    found: Dict[str, Any] = {}
    for node in gm.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if len(found) < len(gradients) and isinstance(value, torch.Tensor) \
                and value.shape == gradients[len(found)].shape:
            found[node.name] = value
    return found
