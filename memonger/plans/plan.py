"""A plan: what is kept, recomputed and replaced, and what that takes.

A :class:`Plan` is the one result type of all solvers and the only input of all reports. It is
frozen and free of MXNet; symbols travel as JSON text, and the planned one becomes a
``mx.sym.Symbol`` when ``plan.symbol`` is asked for.
"""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, TypeVar, Union, cast

from ..graph.schedule import Schedule
from ..graph.types import Graph
from ..memory.host import host_bytes
from .above import views
from .footprint import Footprints
from .parts import Outcome, Status, Terms
from .record import Record

T = TypeVar("T")
#: ``Plan.costs`` where no op has a time and each counts for the same: times are no seconds.
UNIT_TIMES = "one unit an op"
#: In place of the extra time of variants that nobody measured.
UNKNOWN_TIME = "time unknown on this machine"
#: How ``Plan.costs`` ends where times are another device's, for want of measured ones.
NOT_OF_THIS_MACHINE = (", as this one is busy", ", as this one is not measured")
#: Names of the fields of a plan's parts, by part.
_OF_PARTS = {name: frozenset(part.__dataclass_fields__) for name, part in (
    ("terms", Terms), ("footprints", Footprints), ("outcome", Outcome))}


@dataclass(frozen=True)
class Progress:
    """What a ``progress=`` callback receives during long work."""

    phase: str
    elapsed_s: float
    #: Total of the best plan so far and its overhead; None before there is one.
    total_bytes: Optional[int] = None
    overhead: Optional[float] = None
    bound: Optional[float] = None
    #: Share of the work done, 0 to 1; None when unknown.
    fraction: Optional[float] = None
    #: The total is in units of the graph's own.
    own_units: bool = False


def _read(doc: str, get: Callable[[Plan], T]) -> T:
    """A read-only property, for the type checker what ``get`` gives."""
    return cast(T, property(get, doc=doc))


@dataclass(frozen=True)
class Plan:
    """All decisions for one network, with predicted bytes and time.

    Sizes are bytes, times seconds, ``overhead`` and ``bound`` shares of the unplanned step
    (0.07 is +7 %). Fields of the terms, footprints and outcome are read on the plan, too.
    """

    #: What was asked for, and how times and bytes are counted.
    terms: Terms
    #: The unplanned training step.
    graph: Graph
    #: What the planned step runs, on ``graph`` (with ``schedule.variants`` in use).
    schedule: Schedule
    #: What the step takes with the plan, and without one.
    footprints: Footprints
    #: How the search ended, what it proved, and remarks.
    outcome: Outcome
    #: What the frontend keeps of the network.
    record: Record = field(default_factory=Record, repr=False)

    def changed(self, **fields: Any) -> "Plan":
        """The plan with other fields.

        Parameters
        ----------
        **fields
            The plan's own, or those of its terms, footprints and outcome.

        Returns
        -------
        Plan
        """
        for name, names in _OF_PARTS.items():
            own = {field: fields.pop(field) for field in names & fields.keys()}
            if own:
                fields[name] = replace(getattr(self, name), **own)
        return replace(self, **fields)

    @property
    def unchecked(self) -> Tuple[str, ...]:
        """What was taken from the plan's file without a check; bytes are worked out again.

        Empty for a plan made in this process.
        """
        stated = {"op times": True, "status": True, "bound": self.bound > 0,
                  "minimum": self.minimum_total_bytes is not None,
                  "measurements": self.measured is not None}
        return tuple(name for name, given in stated.items() if given and self.from_file)

    def with_bound(self, bound: float) -> "Plan":
        """The plan with another bound; called optimal only as long as that one proves it.

        Parameters
        ----------
        bound : float
            As a share of the unplanned step.

        Returns
        -------
        Plan
        """
        bound = min(bound, self.overhead)
        unproven = self.status is Status.OPTIMAL and bound < self.overhead
        return self.changed(bound=bound, status=Status.FEASIBLE if unproven else self.status)

    # ------------------------------------------------------------------ fields of its parts
    budget_bytes = _read("The most that the step may take.", lambda plan: plan.terms.budget_bytes)
    options = _read("Keyword arguments of ``memonger.plan``.", lambda plan: plan.terms.options)
    costs = _read("Where the op times come from.", lambda plan: plan.terms.costs)
    storage = _read("How storage is assigned.", lambda plan: plan.terms.storage)
    planned = _read("What the step takes with the plan.", lambda plan: plan.footprints.planned)
    unplanned = _read("What it takes without one.", lambda plan: plan.footprints.unplanned)
    status = _read("How the search ended.", lambda plan: plan.outcome.status)
    method = _read("The method that found the plan.", lambda plan: plan.outcome.method)
    bound = _read("No plan of the class has a smaller overhead.", lambda plan: plan.outcome.bound)
    bounded = _read("The method proved the bound itself.", lambda plan: plan.outcome.bounded)
    minimum_total_bytes = _read(
        "No plan of the class has a smaller total.", lambda plan: plan.outcome.minimum_total_bytes)
    notes = _read("Remarks, a sentence each.", lambda plan: plan.outcome.notes)
    planning_s = _read("Seconds the planning took.", lambda plan: plan.outcome.planning_s)
    measured = _read("What ``memonger.measure`` found.", lambda plan: plan.outcome.measured)
    from_file = _read("Read from a file.", lambda plan: plan.outcome.from_file)

    # ------------------------------------------------------------------ totals
    @property
    def total_bytes(self) -> int:
        """Pool and all bytes outside it, with the plan."""
        return self.planned.total_bytes

    @property
    def baseline_total_bytes(self) -> int:
        """The same without a plan, on the framework as it comes."""
        return self.unplanned.total_bytes

    @cached_property
    def host_bytes(self) -> int:
        """The most bytes of values on the host at a step, with the plan; in no total."""
        return host_bytes(self.graph, self.schedule)

    @property
    def pool_bytes(self) -> int:
        """What is allocated for internal tensors, with the plan."""
        return self.planned.pool_bytes

    @property
    def baseline_pool_bytes(self) -> int:
        """The same without a plan, on the framework as it comes."""
        return self.unplanned.pool_bytes

    @property
    def predicted_pool_bytes(self) -> Optional[int]:
        """The pool that follows from the graph, where the framework allocates another."""
        return self.planned.predicted_pool_bytes

    @property
    def fixed_bytes(self) -> Mapping[str, int]:
        """Bytes outside the pool by category, with the plan."""
        return self.planned.outside_bytes

    @property
    def baseline_fixed_bytes(self) -> Mapping[str, int]:
        """The same without a plan, on the framework as it comes."""
        return self.unplanned.outside_bytes

    @property
    def overhead(self) -> float:
        """Extra step time as a share of the unplanned step; 0.07 is +7 %."""
        base_s = self.graph.time_s
        return self.schedule.time_s(self.graph) / base_s - 1.0 if base_s > 0 else 0.0

    @property
    def time_is_known(self) -> bool:
        """False where variants run whose time nobody measured on this machine.

        They count as slower than the ops that they stand for.
        """
        return not (self.schedule.variants and self.costs.endswith(NOT_OF_THIS_MACHINE))

    @property
    def decisions(self) -> Dict[str, str]:
        """Forward op name -> "keep", "recompute", a variant's name, or "<variant>+recompute"."""
        again = set(self.schedule.recomputed())
        variant = {self.graph.variants[i].op: self.graph.variants[i].name
                   for i in self.schedule.variants}
        result = {}
        for index, op in enumerate(self.graph.ops):
            if op.is_backward or not op.runs:  # a place that only variants give work to
                continue
            parts = [variant[index]] if index in variant else []
            if index in again:
                parts.append("recompute")
            result[op.name] = "+".join(parts) or "keep"
        return result

    # ------------------------------------------------------------------ the planned symbol
    @cached_property
    def symbol_json(self) -> Optional[str]:
        """The planned symbol as JSON: the original with the plan's decisions on it."""
        return self.record.symbol_json(self)

    @property
    def symbol(self) -> Any:
        """The planned ``mx.sym.Symbol``; None for graphs that are not MXNet's."""
        return self.record.symbol(self)

    @property
    def by_device(self) -> Mapping[str, Mapping[str, int]]:
        """Totals of a network that is spread over devices, by the name of each."""
        return self.record.by_device

    def with_measured(self, measured: Mapping[str, Any]) -> "Plan":
        """The plan with a measurement beside its predictions.

        Parameters
        ----------
        measured : mapping
            What ``to_dict()`` of a :func:`memonger.measure` gives.

        Returns
        -------
        Plan
        """
        return self.changed(measured=dict(measured))

    # ------------------------------------------------------------------ views
    def explain(self, op: str) -> str:
        """Why ``op`` got its decision, what it saves, costs and depends on.

        Parameters
        ----------
        op : str
            Name of a forward op.

        Returns
        -------
        str
            Four lines or so.

        Raises
        ------
        UnknownOpError
            If the plan has no such op; close names are suggested.
        """
        return views().explain(self, op)

    def timeline(self) -> Any:
        """Live and allocated bytes at each step.

        Returns
        -------
        memonger.memory.timeline.Timeline
        """
        from ..memory.timeline import timeline
        return timeline(self.graph, self.schedule, self.storage)

    def to_graphviz(self, **options: Any) -> Any:
        """Diagram of the plan.

        Parameters
        ----------
        **options
            As in :func:`memonger.report.diagram.render.diagram`.

        Returns
        -------
        graphviz.Digraph

        Raises
        ------
        RenderError
            If the Python package ``graphviz``, which MXNet brings along, is missing.
        """
        return views().diagram(self, **options)

    def report(self, path: str) -> None:
        """Write a self-contained HTML report.

        Parameters
        ----------
        path : str

        Raises
        ------
        MemongerError
            If the file cannot be written.
        """
        views().write_html(self, path)

    def save(self, path: str) -> None:
        """Write the plan as JSON, whole or not at all.

        Parameters
        ----------
        path : str

        Raises
        ------
        MemongerError
            If the file cannot be written.
        """
        views().save_plan(self, path)

    def __repr__(self) -> str:
        size = self.graph.format_size
        return "<Plan%s: %s, %s of %s, %s>" % (
            " " + self.graph.name if self.graph.name else "", self.status.value,
            size(self.total_bytes), size(self.baseline_total_bytes),
            "%+.1f %% time" % (100 * self.overhead) if self.time_is_known else UNKNOWN_TIME)

    def __str__(self) -> str:
        return views().summary(self)

    def _repr_html_(self) -> str:
        return views().fragment(self)


Budget = Union[None, str, int, float]
