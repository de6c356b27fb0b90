"""What torchtitan's own policies decide for a step: no plan is slower in as many bytes."""
from __future__ import annotations

from typing import Any, Iterator, List, Optional, Sequence, Tuple

from ...graph.schedule import Schedule, expand
from ...planning.confirmed_plan import confirmed
from ...planning.search_options import record_of
from ...plans.footprint import Footprint, Footprints
from ...plans.parts import Outcome, Status, Terms
from ...plans.plan import Plan
from ...util.units import KNEE, parse_budget
from ..pytorch import private_joint
from ..step.network import TracedNetwork

#: Those that compute values again, by the engine's names.
_NAMES = ("default", "eager", "full")


def policies(network: TracedNetwork, config: Any) -> List[Plan]:
    """The engine's policies as plans, the fastest first; none where no budget asks for one."""
    if network.request.budget in (None, KNEE) or not hasattr(config, "parallelism") \
            or _budget_bytes(network) >= network.unplanned.total_bytes:
        return []
    made = [Plan(Terms(), network.graph, schedule, Footprints(Footprint(
        network.pool_bytes(schedule), network.outside_bytes), network.unplanned),
        Outcome(Status.FEASIBLE, name))
        for name, schedule in _schedules(network, config)]
    return sorted(made, key=lambda plan: plan.overhead)


def within_budget(network: TracedNetwork, engine: Sequence[Plan]) -> Optional[Plan]:
    """The first plan that keeps the budget by the network's graph; None where none does."""
    return next((plan for plan in engine if plan.pool_bytes <= network.pool_within(
        _budget_bytes(network)).pool_bytes), None)


def faster(network: TracedNetwork, engine: Sequence[Plan], ours: Optional[Plan],
           started_s: float) -> Optional[Plan]:
    """The first plan that takes less time than ours and, as the engine runs it, keeps the budget.

    The engine computes values again in an order of its own, where some policies take less memory
    than the graph tells. ``ours``: None where no plan was found.
    """
    for plan in engine:
        if ours is not None and plan.overhead >= ours.overhead:
            break
        made = confirmed(network, plan, _budget_bytes(network),
                         record_of(network, network.request), started_s)
        if made.total_bytes <= _budget_bytes(network):
            note = "this is the engine's own policy %r" % plan.method
            return made.changed(notes=(*made.notes, note)).with_bound(
                0.0 if ours is None else ours.bound)
    return None


def _budget_bytes(network: TracedNetwork) -> int:
    assert network.request.budget is not None
    return parse_budget(network.request.budget, network.unplanned.total_bytes)


def _schedules(network: TracedNetwork, config: Any) -> Iterator[Tuple[str, Schedule]]:
    from torchtitan.experiments.graph_trainer.memory_policy import MEMORY_POLICY_REGISTRY
    graph, captured = network.graph, network.captured
    for name in _NAMES:
        MEMORY_POLICY_REGISTRY[name](captured.joint, config=config)
        again = [node for node in captured.joint.graph.nodes
                 if private_joint.is_again(node.meta.pop("recompute", None))]
        ops = {captured.ops_by_node[node] for node in again if node in captured.ops_by_node}
        yield name, expand(graph, {op: {} for op in ops if graph.ops[op].recomputable})
