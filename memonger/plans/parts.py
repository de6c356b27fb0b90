"""Parts of a plan: the terms that it was made on, and how planning ended."""
from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Tuple


class Status(str, enum.Enum):
    """How a search ended."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    NOT_NEEDED = "not_needed"
    TIME_LIMIT = "time_limit"
    INTERRUPTED = "interrupted"

    @property
    def advice(self) -> str:
        """What the status means, in a sentence."""
        return {
            "optimal": "proven: no other choice of ops is cheaper at this budget "
                       "and these op times",
            "feasible": "not proven optimal",
            "not_needed": "the network fits without a plan",
            "time_limit": "the best found in time; a longer time limit may find a better one",
            "interrupted": "the best found before the interruption",
        }[self.value]


@dataclass(frozen=True)
class Terms:
    """What a plan was asked for, and how its times and bytes are counted.

    Attributes
    ----------
    budget_bytes : int or None
        The most that the step may take in all; None where the least memory was asked for.
    options : mapping
        For the record: keyword arguments of ``memonger.plan``.
    costs : str
        Where the op times come from: "roofline: cpu", ``"profile: <device>"``, "units",
        ``UNIT_TIMES``.
    storage : str
        How storage is assigned: "arena" or "best" (plugin), "stock" (MXNet), "live" (peak of live
        bytes).
    """

    budget_bytes: Optional[int] = None
    options: Mapping[str, Any] = field(default_factory=dict)
    costs: str = "units"
    storage: str = "best"


@dataclass(frozen=True)
class Outcome:
    """What planning found out, beside the schedule and its bytes.

    Attributes
    ----------
    status : Status
        How the search ended.
    method : str
        The method that found the plan.
    bound : float
        Smallest overhead that any plan of the class can have at this budget.
    minimum_total_bytes : int or None
        No plan of the class has a smaller total (a proven bound); None when not computed.
    notes : tuple of str
        Remarks of the method and of the caller, a sentence each.
    measured : mapping or None
        Measured by ``memonger.measure``, when the user ran it; see :mod:`.measurement`.
    bounded : bool
        The method proved ``bound`` itself. Not part of plan files.
    planning_s : float
        Seconds the planning took; not saved, so that plan files are reproducible.
    from_file : bool
        All this was read from a file; see ``Plan.unchecked``.
    """

    status: Status
    method: str
    bound: float = 0.0
    minimum_total_bytes: Optional[int] = None
    notes: Tuple[str, ...] = ()
    measured: Optional[Mapping[str, Any]] = None
    bounded: bool = field(default=False, repr=False, compare=False)
    planning_s: float = field(default=0.0, compare=False)
    from_file: bool = field(default=False, compare=False)
