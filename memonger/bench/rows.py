"""Results of the benchmark's cases."""
from __future__ import annotations

import dataclasses
from typing import Any, Dict, Mapping, Optional

from .published import Published


@dataclasses.dataclass(frozen=True)
class Row:
    """Result of one case. Sizes are bytes; ``overhead`` and ``bound`` are shares of the step."""

    network: str
    batch: int
    method: str
    target: str = ""
    #: What stock MXNet allocates for the network without any plan.
    unplanned_pool_bytes: int = 0
    unplanned_total_bytes: int = 0
    pool_bytes: int = 0
    total_bytes: int = 0
    overhead: float = 0.0
    #: No plan of the class has less overhead at this budget.
    bound: float = 0.0
    planning_s: float = 0.0
    status: str = ""
    costs: str = ""
    ops: int = 0
    #: Forward pass as a share of the unplanned step.
    forward: float = 0.0
    published: Optional[Published] = None
    #: From ``memonger.measure``, at its own batch; see :class:`memonger.bench.measuring.Trainer`.
    measured: Optional[Mapping[str, Any]] = None
    #: Why there is no result.
    error: str = ""

    @property
    def pool_cut(self) -> float:
        return 1.0 - self.pool_bytes / self.unplanned_pool_bytes

    @property
    def total_cut(self) -> float:
        return 1.0 - self.total_bytes / self.unplanned_total_bytes

    def to_dict(self) -> Dict[str, Any]:
        """For JSON; what is empty is left out."""
        return {name: value for name, value in dataclasses.asdict(self).items()
                if value not in (None, "")}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Row":
        """Inverse of :meth:`to_dict`."""
        published = data.get("published")
        return cls(**{**data, "published": Published(**published) if published else None})
