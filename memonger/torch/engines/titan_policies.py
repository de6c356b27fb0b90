"""What torchtitan's own policies decide for a step: a search for a plan begins with the best."""
from __future__ import annotations

from typing import Any, Iterator, Optional, Set

import torch.fx as fx

from ...graph.schedule import Schedule, expand
from ...plans.footprint import Footprint
from ...plans.plan import Plan, Status
from ...util.units import KNEE, parse_budget
from ..pytorch import private_joint
from ..step.network import TracedNetwork
from .titan_graph import name_sums

#: Those that compute values again, by the engine's names.
_NAMES = ("default", "eager", "full")


def best_of_engine(network: TracedNetwork, gm: fx.GraphModule, config: Any) -> Optional[Plan]:
    """The fastest of the engine's policies that keeps the budget; None where none does.

    ``gm``: the engine's graph, which stays as it is.
    """
    budget, graph = network.request.budget, network.graph
    if budget is None or budget == KNEE or not hasattr(config, "parallelism"):
        return None
    allowed = network.pool_within(parse_budget(budget, network.unplanned.total_bytes))
    fitting = [s for s in _schedules(network, gm, config)
               if network.pool_bytes(s) <= allowed.pool_bytes]
    best = min(fitting, key=lambda schedule: schedule.time_s(graph), default=None)
    return None if best is None else Plan(
        graph, best, Status.FEASIBLE, "given", Footprint(network.pool_bytes(best),
                                                         network.outside_bytes),
        network.unplanned)


def _schedules(network: TracedNetwork, gm: fx.GraphModule, config: Any) -> Iterator[Schedule]:
    from torchtitan.experiments.graph_trainer.memory_policy import MEMORY_POLICY_REGISTRY
    graph, captured = network.graph, network.captured
    for name in _NAMES:
        marked = private_joint.copied(gm)
        name_sums(marked)
        MEMORY_POLICY_REGISTRY[name](marked, config=config)
        again: Set[str] = {node.name for node in marked.graph.nodes
                           if private_joint.is_again(node.meta.get("recompute"))}
        yield expand(graph, {op: {} for node, op in captured.ops_by_node.items()
                             if node.name in again and graph.ops[op].recomputable})
