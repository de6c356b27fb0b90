"""What planning asks of a network that a frontend read.

A frontend answers five questions: ``graph``, ``unplanned``, ``pool_within``, ``apply`` and
``confirm``. The others have answers that fit where values have memory of their own, and where
nothing but the graph says what a plan takes; a frontend gives its own where that is not so. What
its plans keep of the network, and how files of them are checked, is a
:class:`memonger.plans.record.Record`.
"""
from __future__ import annotations

from typing import Any, Collection, Mapping, Optional, Protocol

from ..graph.types import Graph
from ..plans.footprint import Footprint
from ..plans.plan import Plan


class Network(Protocol):
    """One training step, unplanned, with the way back to what the framework runs."""

    @property
    def graph(self) -> Graph:
        """The step, with op times and the variants offered so far."""
        ...

    @property
    def unplanned(self) -> Footprint:
        """What the step takes without a plan, on the framework as it comes."""
        ...

    def pool_within(self, total_bytes: int) -> Footprint:
        """A total divided into the pool and all else by category."""
        ...

    def apply(self, plan: Plan) -> Any:
        """What the framework runs by the plan."""
        ...

    def confirm(self, plan: Plan, applied: Any) -> Plan:
        """The plan with the bytes that its ``applied`` form takes."""
        ...

    # ------------------------------------------------------------------ with usual answers
    @property
    def outside_bytes(self) -> Mapping[str, int]:
        """Bytes outside the pool by category, as far as they are known before there is a plan."""
        return self.unplanned.outside_bytes

    @property
    def reserve_bytes(self) -> int:
        """What most plans take beyond what the graph says, though some may not."""
        return 0

    @property
    def storage(self) -> str:
        """How the memory of a plan is assigned; see :mod:`memonger.memory.storage`."""
        return "live"

    @property
    def costs(self) -> str:
        """Where op times come from, for the record."""
        return "units"

    @property
    def record(self) -> Mapping[str, Any]:
        """How the network is bound and trained, as a plan file holds it."""
        return {}

    @property
    def elsewhere(self) -> Collection[int]:
        """Ops that run where no memory counts."""
        return ()

    @property
    def is_foreseen(self) -> bool:
        """Whether all bytes of a plan are known before it is applied and bound."""
        return True

    def named(self, name: str) -> "Network":
        """The same, called ``name`` in tables, pictures and pages."""
        return self

    def offering(self, variants: str) -> "Network":
        """The same, its graph offering operator variants: "none", "exact" or "all"."""
        return self

    def without_variants(self, numbers: Collection[int]) -> "Network":
        """The same, without some of the variants that it offers."""
        return self

    def as_it_comes(self) -> "Network":
        """The same on the framework as it comes, whose steps may take less outside the pool."""
        return self

    def in_whole_buffers(self) -> Optional["Network"]:
        """The same with plans without an arena, where that may take less outside the pool."""
        return None

    def as_plan(self, plan: Plan) -> Plan:
        """A solver's answer as a plan of this network, beside its unplanned step."""
        return plan.changed(costs=self.costs, unplanned=self.unplanned)

    def advice(self, plan: Plan) -> str:
        """What else would make the plan smaller, to be added to a refusal; "" for nothing."""
        return ""
