"""The bytes of one training step, by category."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Mapping

from ..graph.schedule import expand
from ..graph.types import Graph
from ..memory.timeline import Timeline, timeline
from ..report.text import estimate_table


@dataclass(frozen=True)
class Estimate:
    """Bytes of one training step, nothing allocated.

    Attributes
    ----------
    by_category : mapping
        "pool", of which outputs of the network are a part, and the categories of
        :attr:`memonger.plans.footprint.Footprint.outside_bytes`.
    pool_bytes, peak_live_bytes : int
        What is allocated for internal tensors, and what of it is alive at the worst step.
    """

    by_category: Mapping[str, int]
    pool_bytes: int
    peak_live_bytes: int
    graph: Graph = field(repr=False)
    #: How executors assign storage.
    storage: str = "best"
    #: Totals of a network on several devices, by the name of each.
    by_device: Mapping[str, int] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        """The sum of all categories."""
        return sum(self.by_category.values())

    def timeline(self) -> Timeline:
        """Live and pool bytes at each step, with the op that runs."""
        return timeline(self.graph, expand(self.graph, {}), self.storage)

    def to_dict(self) -> Dict[str, Any]:
        """All numbers, fit for JSON."""
        return {"by_category": dict(self.by_category), "total_bytes": self.total_bytes,
                "pool_bytes": self.pool_bytes, "peak_live_bytes": self.peak_live_bytes,
                **({"by_device": dict(self.by_device)} if self.by_device else {})}

    def __str__(self) -> str:
        return estimate_table(self.by_category, by_device=self.by_device, graph=self.graph)
