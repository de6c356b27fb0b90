"""From a request and a graph that was read to its plan."""
from __future__ import annotations

import time
from dataclasses import replace
from typing import Optional

import torch

from ..graph.schedule import Schedule, expand
from ..memory.storage import plan_storage
from ..plan.footprint import Footprint
from ..plan.plan import Plan, Status
from ..solve import Options, solve
from ..util.errors import InfeasibleBudget, PlanMismatch
from ..util.units import parse_budget
from .apply import usual_schedule
from .capture import PARAMETER, Captured
from .request import Request

#: A note of plans for eager kernels without a profile.
_UNCOUNTED = ("what operators allocate while they run, as convolutions do on a CPU, is not counted "
              "without a profile: costs=memonger.torch.profile(module, inputs)")
#: A note of plans with :mod:`.variants`.
_IN_CHUNKS = ("the output layer and its cross-entropy run in chunks of rows, as in "
              "memonger.torch.linear_cross_entropy: results differ from PyTorch's in the last bits")


def make_plan(captured: Captured, request: Request, pool_bytes: int = 0,
              original: Optional[Plan] = None) -> Plan:
    """The plan of one graph.

    ``pool_bytes``: the most for what the step allocates, below what the budget leaves; 0: none.
    ``original``: the unplanned step, where the graph is that network with other operators.
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
    usual = expand(graph, {})
    kept = baseline = plan_storage(graph, usual, "live").pool_bytes
    if request.mode == "inductor":
        usual = usual_schedule(captured)
        baseline = plan_storage(graph, usual, "live").pool_bytes
    unplanned = original.baseline_pool_bytes if original else baseline
    # PyTorch's own split, which Inductor's mode uses, has one clone of an op.
    clones = 1 if request.mode == "inductor" or captured.dynamic else request.max_clones
    options = Options(
        storage="live", variants="none", time_limit_s=request.time_limit, fixed_bytes=fixed,
        costs=request.costs if request.measured_s else captured.costs, max_clones=clones,
        progress=request.progress)
    budget_bytes = None if request.budget is None else parse_budget(
        request.budget, unplanned + outside_bytes)
    allowed = None if budget_bytes is None else pool_bytes or budget_bytes - outside_bytes
    if request.unplanned or allowed is not None and baseline <= allowed:
        plan = Plan(graph=graph, schedule=usual, method="none",
                    status=Status.FEASIBLE if original else Status.NOT_NEEDED,
                    planned=Footprint(baseline, fixed), unplanned=Footprint(kept, fixed),
                    costs=options.costs, storage="live")
    else:
        # The search for the least memory does four times the work of its limit.
        try:
            plan = solve(graph, allowed, "auto", options if allowed is not None else replace(
                options, objective="memory", time_limit_s=request.time_limit / 2))
        except InfeasibleBudget as error:
            error.args = ("%s; a smaller batch takes less" % error,)
            raise
        if request.mode == "inductor":
            plan = _with_usual(plan, usual)
    if request.mode == "eager" and not request.temporary_bytes:
        plan = replace(plan, notes=(*plan.notes, _UNCOUNTED))
    if original:
        plan = replace(plan, notes=(*plan.notes, _IN_CHUNKS))
    plan = replace(plan, budget_bytes=budget_bytes, unplanned=Footprint(
        unplanned, plan.unplanned.outside_bytes, kept if kept != unplanned else None))
    asked = {"mode": request.mode, "torch": torch.__version__, "variants": request.variants}
    if request.budget is not None:
        asked["budget"] = request.budget
    return replace(plan, options=asked, planning_s=time.perf_counter() - started_s)


def _with_usual(plan: Plan, usual: Schedule) -> Plan:
    """The plan with what Inductor computes again anyway, where that takes no more."""
    again = {*plan.schedule.recomputed(), *usual.recomputed()}
    both = expand(plan.graph, {op: {} for op in again})
    pool_bytes = plan_storage(plan.graph, both, "live").pool_bytes
    if pool_bytes > plan.pool_bytes or both.steps == plan.schedule.steps:
        return plan
    return replace(plan, schedule=both, planned=replace(plan.planned, pool_bytes=pool_bytes),
                   status=Status.FEASIBLE if plan.status is Status.OPTIMAL else plan.status)
