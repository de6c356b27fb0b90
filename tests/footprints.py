"""Plans whose bytes are stated in a test."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

from memonger.graph.schedule import Schedule
from memonger.graph.types import Graph
from memonger.plans.footprint import Footprint, Footprints
from memonger.plans.parts import Outcome, Status, Terms
from memonger.plans.plan import Plan


def pair(pool_bytes: int, baseline_pool_bytes: int, fixed_bytes=()) -> Footprints:
    """Footprints of a plan, with the same bytes outside the pool."""
    outside = dict(fixed_bytes)
    return Footprints(Footprint(pool_bytes, outside), Footprint(baseline_pool_bytes, outside))


def plan_with(footprints: Footprints, graph: Graph, schedule: Schedule, **fields: Any) -> Plan:
    """A plan with these bytes, by default one of method "local" without a proof."""
    return Plan(Terms(), graph, schedule, footprints, Outcome(Status.FEASIBLE, "local")).changed(
        **fields)


def planned_as(plan: Plan, **fields: Any) -> Plan:
    """The plan with another footprint of its planned step."""
    return plan.changed(planned=replace(plan.planned, **fields))


def unplanned_as(plan: Plan, **fields: Any) -> Plan:
    """The plan with another footprint of the unplanned step."""
    return plan.changed(unplanned=replace(plan.unplanned, **fields))
