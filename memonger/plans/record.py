"""What the frontend that made a plan keeps in it, and answers about it."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional


@dataclass(frozen=True)
class Record:
    """The record of plans that hold no more than a graph: those of PyTorch, and of graphs.

    A frontend whose plans hold more has a class of its own, which :mod:`memonger.plans.above` finds
    for the plans in files.
    """

    #: Of a network spread over devices: by the name of each, its "total_bytes",
    #: "unplanned_total_bytes" and, where it was given one, "budget_bytes".
    by_device: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def in_file(self) -> Dict[str, Any]:
        """The fields of the plan file that hold it."""
        return {"original_json": None}

    def check(self, plan: Any) -> None:
        """Raise ValueError unless the plan, read from a file, is one of this network."""

    def symbol_json(self, plan: Any) -> Optional[str]:
        """The planned symbol as JSON; None where there is none."""
        return None

    def symbol(self, plan: Any) -> Any:
        """The planned symbol; None where there is none."""
        return None

    def refused_variants(self, plan: Any, op: str, variants: str) -> List[str]:
        """Lines on variants that were not offered in the place of an op.

        ``variants``: that were asked for, "exact" or "all".
        """
        return []
