"""What is known while a module's graphs are compiled: requests, plans, sizes, measured bytes."""
from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
import torch.fx as fx

from ...plans.plan import Plan, Progress
from ...util.errors import MemongerError
from ...util.units import is_of_step, parse_budget
from ..capture.captured import Captured
from ..capture.costs import ROOFLINES
from ..pytorch.sizes import Symbols, Values
from ..times.profile import Profile, measured_bytes
from ..times.stored_profiles import keep
from .network import UNCOUNTED
from .request import Request


@dataclass
class PlannedGraph:
    """One joint graph of a module with its plan."""

    captured: Captured
    plan: Plan
    #: Its operators are the network's own, not :mod:`..rewrite.loss_layers`.
    exact: bool = True


@dataclass
class Code:
    """What one compilation made of a graph."""

    call: Callable[..., Any]
    #: Its graph by a plan; None where that is not known.
    planned: Optional[PlannedGraph]
    #: Whether gradients are taken.
    trains: bool
    #: Sizes at which it was measured to keep the budget.
    measured: List[Values] = field(default_factory=list)
    #: What PyTorch took for granted about the sizes.
    conditions: Sequence[Any] = ()

    def is_known_to_fit(self, values: Values) -> bool:
        """Whether it was measured with sizes at least as large."""
        return any(all(values[symbol] <= most for symbol, most in sizes.items())
                   for sizes in self.measured)


class Seen:
    """Sizes of the inputs of all compilations so far, by the expressions that inputs come from."""

    def __init__(self) -> None:
        #: Refuse a budget that no plan for the largest sizes meets.
        self.must_fit = False
        self._sizes: Dict[str, List[Tuple[int, ...]]] = {}

    def add(self, sources: Sequence[str], inputs: Sequence[Any]) -> None:
        """Note a compilation for these inputs, which have numbers for sizes."""
        for source, value in zip(sources, inputs):
            if isinstance(value, torch.Tensor):
                self._sizes.setdefault(source, []).append(tuple(value.shape))

    def largest(self, symbols: Symbols, sources: Sequence[str], values: Values) -> Values:
        """Each symbol's largest value so far."""
        found = dict(values)
        for symbol, places in symbols.places.items():
            for position, dimension in places:
                for shape in self._sizes.get(sources[position], ()):
                    if dimension < len(shape):
                        found[symbol] = max(found[symbol], int(shape[dimension]))
        return found


class Compilation:
    """A module that is being compiled by plans."""

    def __init__(self, request: Request, only_plan: bool = False):
        self.request, self.only_plan = request, only_plan
        self.graphs: List[PlannedGraph] = []
        #: Bytes that a plan's pool may take after a trial, by the graph's fingerprint.
        self.tightened: Mapping[str, int] = {}
        self.seen = Seen()
        #: Inductor's configuration for the graph that was divided last.
        self.lowering: Dict[str, Any] = {}
        #: What ops take besides their results while they run, by signature.
        self.known_bytes = dict(request.temporary_bytes)
        self._started_s = time.perf_counter()

    def tell(self, phase: str) -> None:
        """What goes on, to the request's ``progress``."""
        if self.request.progress is not None:
            self.request.progress(Progress(phase, time.perf_counter() - self._started_s))

    @property
    def has_budget(self) -> bool:
        """Whether there is a budget that steps keep."""
        given = self.request.plan
        return not self.only_plan and not self.request.unplanned and (
            given.budget_bytes if given else self.request.budget) is not None

    @property
    def counts(self) -> bool:
        """Whether what ops take while they run is counted: of a plan that was made without only in
        eager mode, as code of Inductor is tried, and where none of its values moves to the host, as
        copies are issued by their times.
        """
        given = self.request.plan
        return given is None or UNCOUNTED not in given.notes or \
            self.request.mode == "eager" and not given.schedule.variants

    @property
    def measures(self) -> bool:
        """Whether it is measured, as libraries' kernels are to keep a budget."""
        return self.has_budget and self.counts and self.request.costs not in ROOFLINES

    @property
    def budget_bytes(self) -> Optional[int]:
        """The budget; None without one, and where the first step, not known yet, says it."""
        budget = self.request.budget
        if self.request.plan is not None:
            return self.request.plan.budget_bytes
        return None if budget is None or is_of_step(budget) else parse_budget(budget, 0)

    def measure(self, joint: fx.GraphModule, arguments: Sequence[Any], device: str = "") -> None:
        """Measure what ops take of which that is not known at the sizes in force.

        ``device``: the one that it is stored for; "": it is not stored.
        """
        found = measured_bytes(joint, self.known_bytes, arguments, self.request.mode == "inductor")
        self.known_bytes.update(found)
        if found and device:
            with contextlib.suppress(OSError, MemongerError):  # then it is measured again
                keep(Profile(device, temporary_bytes=found))
