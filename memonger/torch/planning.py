"""From a request and a graph that was read to its plan."""
from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Callable, Mapping, Optional, Sequence

import torch

from ..graph.schedule import expand
from ..memory.storage import plan_storage
from ..plan.plan import Budget, Plan, Progress, Status
from ..solve import Options, solve
from ..util.errors import InputError, PlanMismatch
from ..util.units import parse_budget, refuse_bare_number
from .capture import PARAMETER, Captured

MODES = ("inductor", "eager")


@dataclass(frozen=True)
class Request:
    """What is asked for; fields as the parameters of :func:`memonger.torch.plan`."""

    budget: Budget = None
    mode: str = "inductor"
    time_limit: float = 10.0
    max_clones: int = 0
    #: Seconds of ops and bytes that they take besides their outputs, by signature.
    measured_s: Mapping[str, float] = field(default_factory=dict)
    temporary_bytes: Mapping[str, int] = field(default_factory=dict)
    #: "auto", one of :data:`.costs.ROOFLINES`, or the device where times were measured.
    costs: str = "auto"
    optimizer_bytes: Optional[Callable[[Sequence[int]], int]] = None
    progress: Optional[Callable[[Progress], None]] = None
    name: str = ""
    plan: Optional[Plan] = None
    #: Nothing is planned: the step as it is.
    unplanned: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InputError("mode must be %s, not %r" % (" or ".join(MODES), self.mode))
        refuse_bare_number(self.budget)


def make_plan(captured: Captured, request: Request, pool_bytes: int = 0) -> Plan:
    """The plan of one graph.

    ``pool_bytes``: the most for what the step allocates, below what the budget leaves; 0: none.
    """
    started_s = time.perf_counter()
    graph = captured.graph
    fixed = captured.outside_bytes
    if request.optimizer_bytes is not None:
        fixed["optimizer"] = request.optimizer_bytes(
            [t.size_bytes for t in graph.tensors if t.category == PARAMETER])
    if request.plan is not None:
        if request.plan.graph.fingerprint != graph.fingerprint:
            raise PlanMismatch(
                "the plan is for another graph: it was made with another module, other inputs or "
                "another version of PyTorch; plan again with memonger.torch.plan",
                request.plan.graph.fingerprint, graph.fingerprint)
        return request.plan
    outside_bytes = sum(fixed.values())
    baseline = plan_storage(graph, expand(graph, {}), "live").pool_bytes
    # PyTorch's own split, which Inductor's mode uses, has one clone of an op.
    clones = request.max_clones or (1 if request.mode == "inductor" or captured.dynamic else 0)
    options = Options(
        storage="live", variants="none", time_limit_s=request.time_limit, fixed_bytes=fixed,
        costs=request.costs if request.measured_s else captured.costs, max_clones=clones,
        progress=request.progress)
    if request.unplanned:
        return _unplanned(captured, fixed, baseline, options, request)
    if request.budget is None:
        plan = solve(graph, None, "auto", replace(options, objective="memory"))
    else:
        budget_bytes = parse_budget(request.budget, baseline + outside_bytes)
        plan = solve(graph, pool_bytes or budget_bytes - outside_bytes, "auto", options)
        plan = replace(plan, budget_bytes=budget_bytes)
    asked = {"mode": request.mode, "torch": torch.__version__}
    if request.budget is not None:
        asked["budget"] = request.budget
    return replace(plan, options=asked, planning_s=time.perf_counter() - started_s)


def _unplanned(captured: Captured, fixed: Mapping[str, int], pool_bytes: int, options: Options,
               request: Request) -> Plan:
    schedule = expand(captured.graph, {})
    return Plan(graph=captured.graph, schedule=schedule, status=Status.NOT_NEEDED, method="none",
                pool_bytes=pool_bytes, baseline_pool_bytes=pool_bytes, fixed_bytes=fixed,
                costs=options.costs, storage="live", options={"mode": request.mode})
