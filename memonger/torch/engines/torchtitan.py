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
import time
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

import torch.fx as fx

from ...graph.decisions import read_as_handed_on
from ...graph.in_use import graph_in_use
from ...graph.schedule import expand
from ...plans.plan import Budget, Plan
from ...util.errors import InfeasibleBudget
from ...util.units import format_bytes, parse_rate
from ..capture.optimizer_moment import pool_at_optimizer, with_optimizer
from ..pytorch import private_joint
from ..pytorch.optimizer import OptimizerBytes, optimizer_named
from ..step.network import TracedNetwork
from ..step.planning import best_plan
from ..step.request import Request, with_host
from . import ranks
from .titan_copies import copies_inserted, with_copies
from .titan_graph import name_sums, names_run_once, read_step, trained_inputs
from .titan_policies import faster, policies, within_budget

logger = logging.getLogger("memonger.torch")
#: The policy's name in the engine.
NAME = "memonger"
#: A note of plans with moves: the engine issues copies and waits for them where layers begin.
_AS_PLACED = "%+.1f %% time as the engine places copies"


def register(budget: Budget = None, host: Any = None, network: Any = None, link: Any = None,
             costs: str = "auto", time_limit: float = 10.0) -> Callable[..., fx.GraphModule]:
    """Make ``--compile.memory_policy memonger`` work in this process.

    Parameters
    ----------
    budget : int or str, optional
        Bytes of a rank, ``"60GB"``, or ``"50%"`` of its unplanned step. It covers the rank's
        parameters and their gradients, the optimizer's state, inputs, activations and collectives.
        Without one the plan takes the least memory that one more forward pass buys.
    host : int or str, optional
        Values may lie in so much of the host's memory between forward and backward, or ``"auto"``:
        half of what is free. Without it they stay on the device.
    network : str or float, optional
        What the link of a rank moves, ``"400GB/s"`` or bytes a second; by default 50 GB/s.
    link : str or float, optional
        Speed of a copy to the host, one way; by default 25 GB/s.
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
    """
    from torchtitan.experiments.graph_trainer.registry import register_memory_policy
    chosen = partial(policy, budget=budget, host=host, network=network, link=link, costs=costs,
                     time_limit=time_limit)
    return register_memory_policy(NAME)(chosen)


def policy(gm: fx.GraphModule, *, config: Any, budget: Budget = None, host: Any = None,
           network: Any = None, link: Any = None, costs: str = "auto",
           time_limit: float = 10.0) -> fx.GraphModule:
    """Mark the nodes of a step that the engine keeps, computes again, or moves to the host.

    Parameters
    ----------
    gm : torch.fx.GraphModule
        The engine's graph of one step: its first output is the loss, the others are gradients.
    config : torchtitan's configuration
        Names the optimizer, how many steps add to a gradient, and how far from their readers the
        engine places copies.
    budget, host, network, link, costs, time_limit
        As for :func:`register`.

    Returns
    -------
    torch.fx.GraphModule
        ``gm``, its forward nodes with ``meta["recompute"]``.

    Raises
    ------
    InfeasibleBudget
        If no plan fits; it carries the smallest total.
    """
    step = plan_step(gm, config, budget, host, network, link, costs, time_limit)
    ranks.check_alike(step.plan)
    step.apply()
    logger.info("memonger: %s", step.summary)
    return gm


@dataclass
class PlannedStep:
    """A step of the engine with its plan."""

    plan: Plan
    #: The engine's graph, and what is decided of its forward nodes, by name.
    graph: fx.GraphModule = field(repr=False)
    tags: Dict[str, Any] = field(repr=False)
    #: How far from readers the engine issues copies and waits for them, as its pass is told.
    places: Dict[str, int] = field(default_factory=dict)

    def apply(self) -> None:
        """Mark the nodes of the engine's graph, for its pass."""
        _mark(self.graph, self.tags)

    @property
    def summary(self) -> str:
        """What is predicted, in a sentence."""
        plan = self.plan
        again = len(set(plan.schedule.recomputed()))
        words = "%s of %s a rank, %+.1f %% time (at least %+.1f %%), %d of %d forward ops again" % (
            format_bytes(plan.total_bytes), format_bytes(plan.baseline_total_bytes),
            100 * plan.overhead, 100 * plan.bound, again,
            sum(not op.is_backward and op.runs for op in plan.graph.ops))
        if plan.host_bytes:
            words += ", %s on the host" % format_bytes(plan.host_bytes)
        return "; ".join([words, *plan.notes])


def plan_step(gm: fx.GraphModule, config: Any, budget: Budget = None, host: Any = None,
              network: Any = None, link: Any = None, costs: str = "auto",
              time_limit: float = 10.0, rates: Mapping[str, float] = MappingProxyType({})
              ) -> PlannedStep:
    """Plan a step of the engine, whose graph stays as it is.

    Parameters
    ----------
    gm, config, budget, host, network, link, costs, time_limit
        As for :func:`policy`.
    rates : mapping
        Speeds of the device and its links in place of these, by their names in
        :class:`..capture.costs.Roofline`.

    Returns
    -------
    PlannedStep

    Raises
    ------
    InfeasibleBudget
        If no plan fits; it carries the smallest total.
    """
    started_s = time.perf_counter()
    request = with_host(Request(budget, mode="eager", time_limit=time_limit, max_clones=1,
                                name="torchtitan", variants="none", costs=costs), host, link)
    rates = {"host_bytes_per_s": request.link_bytes_per_s, **rates}
    if network is not None:
        rates["network_bytes_per_s"] = parse_rate(network)
    held = list(trained_inputs(gm).values())
    captured = read_step(gm, rates, costs)
    captured.gradient_bytes = sum(v.untyped_storage().nbytes() for v in held) \
        if _accumulates(config) else 0
    steps, places = [captured], _places_of_copies(config)
    if request.host_budget_bytes is not None:
        steps.insert(0, with_copies(captured, gm, rates["host_bytes_per_s"], places))
    optimizer_bytes = _optimizer_bytes(config, held)
    networks = [EngineStep(with_optimizer(step, optimizer_bytes, None), request, engine_graph=gm,
                           rates=rates, places=places) for step in steps]
    engine = policies(networks[-1], config)
    given = within_budget(networks[-1], engine)
    plan: Optional[Plan]
    try:
        plan = best_plan([replace(n, request=replace(n.request, given=given)) for n in networks])
    except InfeasibleBudget:
        plan = faster(networks[-1], engine, None, started_s)
        if plan is None:
            raise
    plan = faster(networks[-1], engine, plan, started_s) or plan
    planned = next(n for n in networks if n.graph.fingerprint == plan.graph.fingerprint)
    return PlannedStep(plan, gm, planned.tags(plan), places)


def _places_of_copies(config: Any) -> Dict[str, int]:
    """How far from readers the engine issues copies and waits for them, as its pass is told."""
    compilation = getattr(config, "compile", None)
    return {ours: getattr(compilation, theirs, 1) for ours, theirs in (
        ("prefetch_lookahead", "cpu_offload_prefetch_n_layers"),
        ("defer_n_layers", "cpu_offload_defer_n_layers"))}


@dataclass(frozen=True)
class EngineStep(TracedNetwork):
    """A step of the engine, which applies plans by its own passes."""

    engine_graph: Optional[fx.GraphModule] = field(default=None, repr=False)
    #: Of links, by their names in :class:`..capture.costs.Roofline`.
    rates: Mapping[str, float] = field(default_factory=dict)
    #: What its pass for copies is told.
    places: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_foreseen(self) -> bool:
        """False: what the engine's passes make of a plan tells what it takes."""
        return False

    def tags(self, plan: Plan) -> Dict[str, Any]:
        """What the engine is to do with each forward node, by its name."""
        again = set(plan.schedule.recomputed())
        captured, graph = self.captured, self.captured.graph
        run_again = {node for op in again for node in (captured.nodes[op], *captured.parts[op])}
        moved = {captured.value_nodes[captured.moves[graph.variants[v].choices[0][0]][1]]
                 for v in plan.schedule.variants}
        # The engine computes views again where what runs again is to read what was fetched.
        viewed = again | read_as_handed_on(graph_in_use(graph, plan.schedule), plan.schedule)
        result = {}
        for node in captured.joint.graph.nodes:
            if node.op != "call_function" or node.name in self._once:
                continue
            held = [t for t in captured.tensors_of.get(node, ()) if t is not None]
            made_again = node in run_again or node in captured.views and \
                any(graph.tensors[t].producer in viewed for t in held)
            result[node.name] = private_joint.decision(made_again, node in moved)
        return result

    @cached_property
    def _once(self) -> Set[str]:
        """Nodes that the engine never runs again."""
        return names_run_once(self.captured.joint)

    def apply(self, plan: Plan) -> Any:
        """The engine's own passes on a copy of its graph."""
        from torchtitan.experiments.graph_trainer.selective_activation_remat import (
            selective_activation_remat_pass,
        )
        assert self.engine_graph is not None
        made = private_joint.copied(self.engine_graph)
        _mark(made, self.tags(plan))
        return selective_activation_remat_pass(copies_inserted(made, self.places))

    def confirm(self, plan: Plan, applied: Any) -> Plan:
        """The plan with what the engine's graph takes."""
        captured = read_step(applied, self.rates, self.request.costs)
        taken, schedule = replace(self, captured=captured), expand(captured.graph, {})
        pool_bytes = max(taken.pool_bytes(schedule), pool_at_optimizer(plan.graph))
        predicted = None if pool_bytes == plan.pool_bytes else plan.pool_bytes
        notes = () if not plan.schedule.variants else (_AS_PLACED % (
            100 * (schedule.time_s(captured.graph) / self.graph.time_s - 1),),)
        return self.as_plan(plan.changed(notes=plan.notes + notes, planned=replace(
            plan.planned, pool_bytes=pool_bytes, predicted_pool_bytes=predicted)))


def _mark(gm: fx.GraphModule, tags: Mapping[str, Any]) -> None:
    name_sums(gm)
    for node in gm.graph.nodes:
        if node.name in tags:
            node.meta["recompute"] = tags[node.name]


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
