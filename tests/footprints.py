"""Plans whose bytes are stated in a test."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

from memonger.plans.footprint import Footprint
from memonger.plans.plan import Plan


def pair(pool_bytes: int, baseline_pool_bytes: int, fixed_bytes=()) -> Any:
    """``planned`` and ``unplanned`` of a plan, with the same bytes outside the pool."""
    outside = dict(fixed_bytes)
    return {"planned": Footprint(pool_bytes, outside),
            "unplanned": Footprint(baseline_pool_bytes, outside)}


def planned_as(plan: Plan, **fields: Any) -> Plan:
    """The plan with another footprint of its planned step."""
    return replace(plan, planned=replace(plan.planned, **fields))


def unplanned_as(plan: Plan, **fields: Any) -> Plan:
    """The plan with another footprint of the unplanned step."""
    return replace(plan, unplanned=replace(plan.unplanned, **fields))
