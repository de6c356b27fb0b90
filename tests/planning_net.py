"""A network as planning asks for it, of no framework: what a plan takes is said by a test."""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Mapping, Optional

from memonger.graph.schedule import expand
from memonger.graph.types import Graph
from memonger.memory.storage import plan_storage
from memonger.plans.footprint import Footprint
from memonger.plans.plan import Plan


@dataclass(frozen=True)
class StatedNetwork:
    """A graph whose plans take so much more than predicted as ``extra_bytes`` says."""

    graph: Graph
    extra_bytes: Callable[[Plan], int] = lambda plan: 0
    is_foreseen: bool = True
    storage: str = "best"
    reserve_bytes: int = 0
    costs: str = "stated"
    elsewhere: tuple = ()
    outside_bytes: Mapping[str, int] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unplanned(self) -> Footprint:
        return Footprint(plan_storage(self.graph, expand(self.graph, {}), "stock").pool_bytes)

    def named(self, name: str) -> StatedNetwork:
        return replace(self, graph=replace(self.graph, name=name))

    def offering(self, variants: str) -> StatedNetwork:
        return self

    def without_variants(self, numbers) -> StatedNetwork:
        return self

    def as_it_comes(self) -> StatedNetwork:
        return self

    def in_whole_buffers(self) -> Optional[StatedNetwork]:
        return None

    def pool_within(self, total_bytes: int) -> Footprint:
        return Footprint(total_bytes)

    def apply(self, plan: Plan) -> Plan:
        return plan

    def confirm(self, plan: Plan, applied: Plan) -> Plan:
        extra_bytes = self.extra_bytes(applied)
        return self.as_plan(plan.changed(planned=Footprint(
            plan.pool_bytes + extra_bytes, {}, plan.pool_bytes)))

    def as_plan(self, plan: Plan) -> Plan:
        return plan.changed(unplanned=self.unplanned)

    def advice(self, plan: Plan) -> str:
        return ""
