"""From a request and a graph that was read to its plan."""
from __future__ import annotations

import time
from dataclasses import replace
from typing import Optional

from ..plan.plan import Plan, Status
from ..planning.confirmed_plan import record_of
from ..planning.planning import plan_network
from ..planning.requests import PlanRequest
from ..util.errors import PlanMismatch
from ..util.units import parse_budget
from .capture import Captured
from .network import TracedNetwork
from .optimizer_moment import check_optimizer
from .request import Request


def make_plan(captured: Captured, request: Request, pool_bytes: int = 0,
              original: Optional[Plan] = None) -> Plan:
    """The plan of one graph.

    ``pool_bytes``: the most for what the step allocates, below what the budget leaves; 0: none.
    ``original``: the unplanned step, where the graph is that network with other operators.
    """
    started_s = time.perf_counter()
    network = TracedNetwork(captured, request, pool_bytes, original)
    graph = captured.graph
    if request.plan is not None:
        if request.plan.graph.fingerprint != graph.fingerprint:
            raise PlanMismatch(
                "the plan is for another graph: it was made with another module, other inputs or "
                "another version of PyTorch; plan again with memonger.torch.plan",
                request.plan.graph.fingerprint, graph.fingerprint)
        return request.plan
    wanted = _wanted(captured, request)
    budget_bytes = None if request.budget is None else parse_budget(
        request.budget, network.unplanned.total_bytes)
    fits = False
    if budget_bytes is not None:
        allowed = network.pool_within(budget_bytes)
        check_optimizer(graph, allowed.pool_bytes, sum(allowed.outside_bytes.values()))
        fits = network.as_usual.pool_bytes <= allowed.pool_bytes
    # What the mode does by itself.
    as_usual = network.beside_unplanned(Plan(
        graph=graph, schedule=network.usual, method="none",
        status=Status.FEASIBLE if original else Status.NOT_NEEDED, planned=network.as_usual,
        unplanned=network.unplanned, budget_bytes=budget_bytes, storage="live",
        options=record_of(network, wanted), planning_s=time.perf_counter() - started_s))
    if request.unplanned or fits and not request.recompute:
        return as_usual
    if captured.checkpoints and wanted.given is None:
        wanted = replace(wanted, given=as_usual)
    return plan_network(network, wanted, started_s)


def _wanted(captured: Captured, request: Request) -> PlanRequest:
    """The request as planning reads it."""
    # PyTorch's own split, which Inductor's mode uses, has one clone of an op.
    clones = 1 if request.mode == "inductor" or captured.dynamic else request.max_clones
    return PlanRequest(
        request.budget, request.overhead, request.method, "none", request.keep,
        request.recompute, request.time_limit, clones, progress=request.progress,
        prove=request.prove, without=request.without, given=request.given)
