"""What planning asks of a network that a frontend read."""
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

    @property
    def outside_bytes(self) -> Mapping[str, int]:
        """Bytes outside the pool by category, as far as they are known before a plan is."""
        ...

    @property
    def storage(self) -> str:
        """How the memory of a plan is assigned; see :mod:`memonger.memory.storage`."""
        ...

    @property
    def costs(self) -> str:
        """Where op times come from, for the record."""
        ...

    @property
    def record(self) -> Mapping[str, Any]:
        """How the network is bound and trained, as a plan file holds it."""
        ...

    @property
    def elsewhere(self) -> Collection[int]:
        """Ops that run where no memory counts."""
        ...

    @property
    def is_foreseen(self) -> bool:
        """Whether all bytes of a plan are known before it is applied and bound."""
        ...

    def named(self, name: str) -> "Network":
        """The same, called ``name`` in tables, pictures and pages."""
        ...

    def offering(self, variants: str) -> "Network":
        """The same, its graph offering operator variants: "none", "exact" or "all"."""
        ...

    def as_unplanned(self) -> "Network":
        """The same, taking no more outside the pool than the framework as it comes."""
        ...

    def in_whole_buffers(self) -> Optional["Network"]:
        """The same with plans without an arena, where that may take less outside the pool."""
        ...

    def pool_within(self, total_bytes: int) -> Footprint:
        """A total divided: what is left for the pool, beside all else by category."""
        ...

    def apply(self, plan: Plan) -> Any:
        """What the framework runs by the plan."""
        ...

    def confirm(self, plan: Plan, applied: Any) -> Plan:
        """The plan with the bytes that its ``applied`` form takes."""
        ...

    def beside_unplanned(self, plan: Plan) -> Plan:
        """A solver's answer as a plan of this network, beside its unplanned step."""
        ...

    def advice(self, plan: Plan) -> str:
        """What else would make the plan smaller, to be added to a refusal; "" for nothing."""
        ...
