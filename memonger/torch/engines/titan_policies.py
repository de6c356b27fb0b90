"""What torchtitan's own policies decide for a step: a search for a plan begins with the best."""
from __future__ import annotations

from typing import Any, Iterator, Optional

from ...graph.schedule import Schedule, expand
from ...plans.footprint import Footprint
from ...plans.plan import Plan, Status
from ...util.units import KNEE, parse_budget
from ..pytorch import private_joint
from ..step.network import TracedNetwork

#: Those that compute values again, by the engine's names.
_NAMES = ("default", "eager", "full")


def best_of_engine(network: TracedNetwork, config: Any) -> Optional[Plan]:
    """The fastest of the engine's policies that keeps the budget; None where none does."""
    budget, graph = network.request.budget, network.graph
    if budget is None or budget == KNEE or not hasattr(config, "parallelism"):
        return None
    allowed = network.pool_within(parse_budget(budget, network.unplanned.total_bytes))
    fitting = [s for s in _schedules(network, config)
               if network.pool_bytes(s) <= allowed.pool_bytes]
    best = min(fitting, key=lambda schedule: schedule.time_s(graph), default=None)
    return None if best is None else Plan(
        graph, best, Status.FEASIBLE, "given", Footprint(network.pool_bytes(best),
                                                         network.outside_bytes),
        network.unplanned)


def _schedules(network: TracedNetwork, config: Any) -> Iterator[Schedule]:
    from torchtitan.experiments.graph_trainer.memory_policy import MEMORY_POLICY_REGISTRY
    graph, captured = network.graph, network.captured
    for name in _NAMES:
        MEMORY_POLICY_REGISTRY[name](captured.joint, config=config)
        again = [node for node in captured.joint.graph.nodes
                 if private_joint.is_again(node.meta.pop("recompute", None))]
        ops = {captured.ops_by_node[node] for node in again if node in captured.ops_by_node}
        yield expand(graph, {op: {} for op in ops if graph.ops[op].recomputable})
