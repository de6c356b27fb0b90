"""A step that is read with one batch and planned with any: one trace for all of them."""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Iterable, Iterator, List, Mapping, Optional, Sequence

from ...plans.plan import Plan
from ..capture.captured import Captured
from ..capture.resized import with_other_batch
from ..pytorch import private_joint
from .backend import Backend, OnlyPlanning
from .network import TracedNetwork
from .planning import first_plan
from .request import Request


class Forms(Backend):
    """A backend that reads all forms of a step, and plans none."""

    def __init__(self, request: Request, only_plan: bool = True, normalize: bool = True):
        super().__init__(request, only_plan, normalize)
        self.forms: List[Captured] = []

    def _divided(self, forms: Iterable[Captured], request: Request, inputs: Sequence[Any],
                 original: Optional[Plan], kwargs: Mapping[str, Any]) -> private_joint.Modules:
        self.forms, self.request = list(forms), request
        raise OnlyPlanning()


@dataclass(frozen=True)
class ReadOnce:
    """A step in all its forms, as it was read with one batch."""

    forms: Sequence[Captured]
    #: With what is known of its ops.
    request: Request
    #: A prime number that divides no other dimension.
    batch: int

    def total_bytes(self, batch: int) -> int:
        """What the unplanned step takes with a batch."""
        return next(self._networks(self.request, batch)).unplanned.total_bytes

    def plan(self, request: Request, batch: int) -> Plan:
        """The plan of the step with a batch.

        Raises InfeasibleBudget if no plan fits.
        """
        known = self.request
        asked = replace(request, measured_s=known.measured_s, costs=known.costs,
                        temporary_bytes=known.temporary_bytes, in_eval=known.in_eval)
        # Decisions that are given take the same bytes whatever their time is.
        estimates = known.estimates if asked.given is None else ""
        return first_plan([network] for network in self._networks(asked, batch, estimates))[1]

    def is_confirmed_by(self, plan: Plan, batch: int) -> bool:
        """Whether the step has the sizes here that it has where it was read for a plan."""
        networks = list(self._networks(self.request, batch))
        return plan.baseline_total_bytes == networks[0].unplanned.total_bytes and any(
            network.graph.fingerprint == plan.graph.fingerprint for network in networks)

    def _networks(self, request: Request, batch: int,
                  estimates: str = "") -> Iterator[TracedNetwork]:
        plain: Optional[TracedNetwork] = None
        for form in self.forms:
            captured = with_other_batch(form, self.batch, batch, request.mode == "inductor",
                                        estimates)
            if plain is not None:
                captured.plain_pool_bytes = plain.as_written_bytes
            network = TracedNetwork(captured, request)
            plain = plain or network
            yield network
