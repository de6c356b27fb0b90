"""A memory policy for torchtitan's ``graph_trainer``: what to keep, and what to compute again.

::

    from memonger.torch.engines import torchtitan
    torchtitan.register(budget="60GB")  # then: --compile.memory_policy memonger

The engine traces one graph of forward, loss, backward and collectives, and asks a policy by name
which values backward computes again. This one plans that for the budget of a rank, gathering
weights again among the choices. The engine's own passes carry the plan out, and a run of them on a
copy of the graph tells what it takes.
"""
from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

import torch
import torch.fx as fx

from ...graph.schedule import expand
from ...plans.plan import Budget, Plan
from ...util.errors import InputError
from ...util.units import format_bytes, parse_rate
from ..capture.captured import INPUT, PARAMETER, Captured
from ..capture.optimizer_moment import pool_at_optimizer, with_optimizer
from ..capture.reading import read
from ..pytorch import private_joint
from ..pytorch.optimizer import OptimizerBytes, optimizer_named
from ..step.network import TracedNetwork
from ..step.planning import plan_of
from ..step.request import Request
from . import ranks

logger = logging.getLogger("memonger.torch")
#: The policy's name in the engine.
NAME = "memonger"
#: Modules whose ops the engine runs once: its pass for recomputation begins behind the last of
#: them, for it knows one backward region.
_ONCE = ("lm_head", "loss")


def register(budget: Budget = None, host: Any = None, network: Any = None,
             costs: str = "auto", time_limit: float = 10.0) -> Callable[..., fx.GraphModule]:
    """Make ``--compile.memory_policy memonger`` work in this process.

    Parameters
    ----------
    budget : int or str, optional
        Bytes of a rank, ``"60GB"``, or ``"50%"`` of its unplanned step. It covers the rank's
        parameters and their gradients, the optimizer's state, inputs, activations and collectives.
        Without one the plan takes the least memory that one more forward pass buys.
    host : None
        Values stay on the device; anything else is refused.
    network : str or float, optional
        What the link of a rank moves, ``"400GB/s"`` or bytes a second; by default 50 GB/s.
    costs : str
        Times of ops: "auto" (by the device), "cpu" or "reference" (10 TFLOP/s and 600 GB/s).
    time_limit : float
        Most work for the search, in counted seconds.

    Returns
    -------
    function
        The policy that was registered.

    Raises
    ------
    ImportError
        Without torchtitan.
    InputError
        If a host is given.
    """
    _refuse_host(host)
    from torchtitan.experiments.graph_trainer.registry import register_memory_policy
    chosen = partial(policy, budget=budget, host=host, network=network, costs=costs,
                     time_limit=time_limit)
    return register_memory_policy(NAME)(chosen)


def policy(gm: fx.GraphModule, *, config: Any, budget: Budget = None, host: Any = None,
           network: Any = None, costs: str = "auto", time_limit: float = 10.0) -> fx.GraphModule:
    """Mark the nodes of a step that the engine keeps, and those that it computes again.

    Parameters
    ----------
    gm : torch.fx.GraphModule
        The engine's graph of one step: its first output is the loss, the others are gradients.
    config : torchtitan's configuration
        Names the optimizer, and how many steps add to a gradient.
    budget, host, network, costs, time_limit
        As for :func:`register`.

    Returns
    -------
    torch.fx.GraphModule
        ``gm``, its forward nodes with ``meta["recompute"]``.

    Raises
    ------
    InfeasibleBudget
        If no plan fits; it carries the smallest total.
    InputError
        If a host is given.
    """
    _refuse_host(host)
    step = plan_step(gm, config, budget, network, costs, time_limit)
    ranks.check_alike(step.plan)
    step.apply()
    logger.info("memonger: %s", step.summary)
    return gm


def _refuse_host(host: Any) -> None:
    if host is not None:
        raise InputError("this policy moves no values to the host: leave host= out; torchtitan's "
                         "own sac_and_offload does")


@dataclass
class PlannedStep:
    """A step of the engine with its plan."""

    plan: Plan
    #: The engine's graph, and what is decided of its forward nodes, by name.
    graph: fx.GraphModule = field(repr=False)
    tags: Dict[str, Any] = field(repr=False)

    def apply(self) -> None:
        """Mark the nodes of the engine's graph, for its pass."""
        _mark(self.graph, self.tags)

    @property
    def summary(self) -> str:
        """What is predicted, in a sentence."""
        plan = self.plan
        again = len(set(plan.schedule.recomputed()))
        return "%s of %s a rank, %+.1f %% time (at least %+.1f %%), %d of %d forward ops again" % (
            format_bytes(plan.total_bytes), format_bytes(plan.baseline_total_bytes),
            100 * plan.overhead, 100 * plan.bound, again,
            sum(not op.is_backward for op in plan.graph.ops))


def plan_step(gm: fx.GraphModule, config: Any, budget: Budget = None, network: Any = None,
              costs: str = "auto", time_limit: float = 10.0) -> PlannedStep:
    """Plan a step of the engine, whose graph stays as it is.

    Parameters
    ----------
    gm, config, budget, network, costs, time_limit
        As for :func:`policy`.

    Returns
    -------
    PlannedStep

    Raises
    ------
    InfeasibleBudget
        If no plan fits; it carries the smallest total.
    """
    speed = None if network is None else parse_rate(network)
    request = Request(budget, mode="eager", time_limit=time_limit, max_clones=1,
                      name="torchtitan", variants="none", costs=costs)
    held = list(_trained(gm).values())
    captured = read_step(gm, speed, costs)
    captured.gradient_bytes = sum(v.untyped_storage().nbytes() for v in held) \
        if _accumulates(config) else 0
    captured = with_optimizer(captured, _optimizer_bytes(config, held), None)
    step = EngineStep(captured, request, engine_graph=gm, network_bytes_per_s=speed)
    plan = plan_of(step)
    return PlannedStep(plan, gm, step.tags(plan))


@dataclass(frozen=True)
class EngineStep(TracedNetwork):
    """A step of the engine, which applies plans by its own pass."""

    engine_graph: Optional[fx.GraphModule] = field(default=None, repr=False)
    network_bytes_per_s: Optional[float] = None

    @property
    def is_foreseen(self) -> bool:
        """False: what the engine's pass makes of a plan tells what it takes."""
        return False

    def tags(self, plan: Plan) -> Dict[str, Any]:
        """What the engine is to do with each forward node, by its name."""
        again = set(plan.schedule.recomputed())
        captured, graph = self.captured, self.captured.graph
        result = {}
        for node in captured.joint.graph.nodes:
            if node.op != "call_function" or node.name in self._once:
                continue
            held = [t for t in captured.tensors_of.get(node, ()) if t is not None]
            made_again = captured.ops_by_node.get(node) in again or node in captured.views and \
                any(graph.tensors[t].producer in again for t in held)
            result[node.name] = private_joint.decision(made_again)
        return result

    @cached_property
    def _once(self) -> Set[str]:
        """Nodes that the engine never runs again."""
        return _names_run_once(self.captured.joint)

    def apply(self, plan: Plan) -> Any:
        """The engine's own pass on a copy of its graph."""
        from torchtitan.experiments.graph_trainer.selective_activation_remat import (
            selective_activation_remat_pass,
        )
        assert self.engine_graph is not None
        made = private_joint.copied(self.engine_graph)
        _mark(made, self.tags(plan))
        return selective_activation_remat_pass(made)

    def confirm(self, plan: Plan, applied: Any) -> Plan:
        """The plan with what the engine's graph takes."""
        captured = read_step(applied, self.network_bytes_per_s, self.request.costs)
        taken = replace(self, captured=captured)
        pool_bytes = max(taken.pool_bytes(expand(captured.graph, {})),
                         pool_at_optimizer(plan.graph))
        predicted = None if pool_bytes == plan.pool_bytes else plan.pool_bytes
        return self.beside_unplanned(replace(plan, planned=replace(
            plan.planned, pool_bytes=pool_bytes, predicted_pool_bytes=predicted)))


def _mark(gm: fx.GraphModule, tags: Mapping[str, Any]) -> None:
    name_sums(gm)
    for node in gm.graph.nodes:
        if node.name in tags:
            node.meta["recompute"] = tags[node.name]


def read_step(gm: fx.GraphModule, network_bytes_per_s: Optional[float] = None,
              costs: str = "auto") -> Captured:
    """The engine's graph as planning sees it. It stays as it is.

    What the engine runs once counts as forward, and backward begins behind it: only from there on
    does anything run again.
    """
    joint = private_joint.copied(gm)
    name_sums(joint)
    once = _names_run_once(joint)
    for node in joint.graph.nodes:
        node.meta.pop("recompute", None)
        private_joint.mark_phase(node, node.name not in once and _is_backward(node))
    trained, inputs = _trained(joint), joint.graph.find_nodes(op="placeholder")
    captured = read(joint, 1, [PARAMETER if n.name in trained else INPUT for n in inputs],
                    costs=costs, network_bytes_per_s=network_bytes_per_s)
    reason = "the engine runs nothing of the output layer and the loss again"
    graph = captured.graph
    ops = tuple(replace(
        op, kept_outputs=(), not_recomputable_because=op.not_recomputable_because or (
            reason if node is not None and node.name in once else ""))
        for op, node in zip(graph.ops, captured.nodes))
    return replace(captured, graph=replace(graph, ops=ops))


def _names_run_once(gm: fx.GraphModule) -> Set[str]:
    """Nodes up to the last of the loss and the output layer that are backward or theirs."""
    nodes = list(gm.graph.nodes)
    last = max((k for k, node in enumerate(nodes) if _module_of(node) in _ONCE), default=-1)
    return {node.name for k, node in enumerate(nodes)
            if k <= last and _is_backward(node) or _module_of(node).startswith(_ONCE)}


def name_sums(gm: fx.GraphModule) -> None:
    """Take the loss's name off sums of gradients of layers.

    With torchtitan 0.3.0 and PyTorch 2.15 they have it, as autograd counts them with the last
    forward op. The pass for recomputation, which begins behind the last op of the loss, then does
    nothing.
    """
    of_layers: Dict[fx.Node, str] = {}
    for node in gm.graph.nodes:
        if not _is_backward(node):
            continue
        behind = next((of_layers[i] for i in node.all_input_nodes if i in of_layers), None)
        if _module_of(node) and _module_of(node) not in _ONCE:
            of_layers[node] = _module_of(node)
        elif behind is not None:
            of_layers[node] = behind
            node.meta["custom"] = {**node.meta["custom"], "module_fqn": behind}


def _module_of(node: fx.Node) -> str:
    return node.meta.get("custom", {}).get("module_fqn", "")


def _is_backward(node: fx.Node) -> bool:
    return bool(node.meta.get("autograd_backward"))


def _trained(gm: fx.GraphModule) -> Dict[str, Any]:
    """The inputs that gradients are taken of, by name: the outputs behind the loss, in order."""
    gradients = [value.meta["val"] for value in gm.graph.output_node().args[0][1:]
                 if isinstance(value, fx.Node)]
    found: Dict[str, Any] = {}
    for node in gm.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if len(found) < len(gradients) and isinstance(value, torch.Tensor) \
                and value.shape == gradients[len(found)].shape:
            found[node.name] = value
    return found


def _accumulates(config: Any) -> bool:
    """Whether a step adds to gradients of steps before it."""
    training = getattr(config, "training", None)
    whole, local = (getattr(training, name, 0) or 0
                    for name in ("global_batch_size", "local_batch_size"))
    return bool(0 < local < whole) and whole > local * _batches(config)


def _batches(config: Any) -> int:
    """Ranks that take batches of their own."""
    parallelism = getattr(config, "parallelism", None)
    found = 1
    for name in ("data_parallel_replicate_degree", "data_parallel_shard_degree"):
        degree = getattr(parallelism, name, 1)
        if degree < 0:  # all ranks that the others leave
            others = 1
            for other in ("data_parallel_replicate_degree", "tensor_parallel_degree",
                          "context_parallel_degree", "pipeline_parallel_degree"):
                others *= max(getattr(parallelism, other, 1), 1)
            degree = max(ranks.count() // others, 1)
        found *= degree
    return found


def _optimizer_bytes(config: Any, trained: List[Any]) -> Optional[OptimizerBytes]:
    """What the engine's optimizer takes for a rank's parameters; None where it names none.

    Of several it is the one of the first group.
    """
    settings = getattr(config, "optimizer", None)
    groups = getattr(settings, "param_groups", ())
    if not groups or not trained:
        return None
    options = {"fused": True} if "fused" in getattr(settings, "implementation", "") else {}
    return optimizer_named(groups[0].optimizer_name.lower(), options).bytes_of(trained)
