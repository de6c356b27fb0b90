"""One search for a plan, confirmed by binding what it found."""
from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any, Dict, Mapping, Optional

from ...graph.types import Graph
from ...plan import unmet_requests
from ...plan.footprint import Footprint
from ...plan.plan import Plan
from ...solve.effort import Effort
from ...util import signals as interrupts
from ...util.errors import InfeasibleBudget, InputError, PluginError
from ...util.units import format_bytes, format_distinct, parse_budget
from ..capture.devices import away
from ..plugin import loading as native
from ..rewrite.load import is_numpy
from ..symbol.common_subexpressions import to_json
from .inputs import pins, share_of
from .network import Session
from .requests import PlanRequest

logger = logging.getLogger("memonger")
#: How often a plan is searched that the bound executor must confirm.
_ATTEMPTS = 3
#: Methods that use no variants.
WITHOUT_VARIANTS = ("sublinear", "chen", "ogc")


def confirmed_plan(session: Session, request: PlanRequest, started_s: float,
                   account: Effort) -> Plan:
    """What a solver answers to the request, with its symbol and the bytes that MXNet takes.

    Where MXNet runs a network with variants in another order than predicted, its pool may come
    out a little larger; then the search has a little less. ``account`` is the work of the call.

    Raises InfeasibleBudget if no plan was found whose executor stays within the budget.
    Raises InputError, PluginError if the request does not fit the network or the backend.
    """
    method = method_of(request)
    session = offering(session, request, method)
    graph, fixed_bytes = session.graph, dict(session.fixed_bytes)
    total_budget = pool_budget = None
    if request.budget is not None:
        total_budget = parse_budget(request.budget, session.unplanned_total_bytes)
        if total_budget >= session.unplanned_total_bytes:  # nothing changes: count it unplanned
            session = session.as_unplanned()
            graph = session.graph
        pool_budget, fixed_bytes = session.pool_within(total_budget)
    options = search_options(session, request, fixed_bytes)
    record = record_of(session, request, method)
    logger.info("read %d forward ops, unplanned total %s; op times: %s", graph.num_forward,
                format_bytes(session.unplanned_total_bytes), session.costs)
    logger.info("searching with method %s for %s", method, "the least memory"
                if pool_budget is None else "a pool of at most %s" % format_bytes(pool_budget))
    smallest: Optional[Plan] = None
    for _ in range(_ATTEMPTS):
        try:
            found = _searched(graph, pool_budget, method, replace(
                options, account=account, time_limit_s=min(
                    options.time_limit_s, max(account.left_s, 0.01))))
        except InfeasibleBudget as error:
            if smallest is not None:
                break  # the error would name the lowered budget, not the caller's
            if isinstance(error.best_plan, Plan):
                error.best_plan = replace(
                    _beside_unplanned(session, error.best_plan), costs=session.costs,
                    original_json=to_json(session.symbol),
                    numpy_arrays=is_numpy(session.symbol), options=dict(record),
                    planning_s=time.perf_counter() - started_s)
            raise
        with interrupts.deferred():  # what was found would be lost
            made = confirmed(session, found, total_budget, record, started_s)
        excess_bytes = 0 if total_budget is None else made.total_bytes - total_budget
        if excess_bytes <= 0 or (made.pool_bytes == found.pool_bytes and session.device is None):
            return made
        assert pool_budget is not None
        if smallest is None or made.total_bytes < smallest.total_bytes:
            smallest = made
        pool_budget -= excess_bytes + pool_budget // 500
        if pool_budget <= 0:
            break
    assert smallest is not None and total_budget is not None
    tuning = smallest.fixed_bytes.get("autotuning", 0)
    raise InfeasibleBudget(
        "no plan was found whose executor takes no more than %s: the smallest takes %s"
        % format_distinct(total_budget, smallest.total_bytes)
        + (", %s of it to tune convolutions (MXNET_CUDNN_AUTOTUNE_DEFAULT=0 spares that)"
           % format_bytes(tuning) if tuning else ""),
        total_budget, smallest.total_bytes, best_plan=smallest)


def method_of(request: PlanRequest) -> str:
    """The method asked for; with recomputation switched off the one that mirroring can follow."""
    if native.backend() != "stock":
        return request.method
    if request.method not in ("auto", "sublinear"):
        raise PluginError("method %r needs the plugin's exact recomputation, which is switched "
                          "off; memonger.native.enable() switches it on, and method sublinear "
                          "plans for MXNet's own mirroring" % request.method)
    return "sublinear"


def offering(session: Session, request: PlanRequest, method: str) -> Session:
    """The session, its graph named as asked and with the variants that the method may use."""
    if request.name:
        session = replace(session, graph=replace(session.graph, name=request.name))
    if request.variants == "none" or native.backend() != "plugin" or method in WITHOUT_VARIANTS:
        return session
    return session.with_variants(exact_only=request.variants == "exact")


def search_options(session: Session, request: PlanRequest, fixed_bytes: Mapping[str, int]) -> Any:
    """What a solver is asked for: the request in ids of ops, and how the session runs plans."""
    from ...solve.options import Options
    graph = session.graph
    max_overhead = share_of(request.overhead)
    if request.budget is None and request.overhead is None and graph.time_s > 0:
        max_overhead = graph.forward_time_s / graph.time_s  # one extra forward pass
    kept, again = pins(graph, request.keep, "keep"), pins(graph, request.recompute, "recompute")
    kept, again = (tuple(i for i in ops if not away(session.captured, graph.ops[i]))
                   for ops in (kept, again))
    both = [graph.ops[i].name for i in kept if i in set(again)]
    if both:
        raise InputError("op %r is both to be kept and to be recomputed" % both[0])
    for index, op in enumerate(graph.ops):  # what the caller says goes before the symbol's marks
        if op.force_mirroring == "True" and op.recomputable and index not in kept:
            again += (index,)
        elif op.force_mirroring == "False" and not op.is_backward and index not in again:
            kept += (index,)
    return Options(
        time_limit_s=request.time_limit, storage=session.storage, backend=native.backend(),
        variants=request.variants, keep=kept, recompute=again, progress=request.progress,
        costs=session.costs, objective="memory" if request.budget is None else "time",
        max_overhead=max_overhead, fixed_bytes=fixed_bytes,
        max_clones=request.max_clones, without=request.without)


def record_of(session: Session, request: PlanRequest, method: str) -> Dict[str, Any]:
    """What was asked for, as a plan file holds it."""
    limits = {"max_clones": request.max_clones} if request.max_clones else {}
    return {"budget": request.budget, "method": method, "variants": request.variants,
            "overhead": request.overhead, "keep": tuple(request.keep),
            "recompute": tuple(request.recompute), **limits, **session.record}


def _searched(graph: Graph, pool_budget: Optional[int], method: str, options: Any) -> Plan:
    """A solver's answer, with notes on what it could not do as asked."""
    from ...solve import solve
    found = solve(graph, pool_budget, method, options)
    logger.info("%s: pool %s, %+.1f %% time", found.status.value, format_bytes(found.pool_bytes),
                100 * found.overhead)
    told = unmet_requests.notes(graph, found.schedule, options.recompute)
    return replace(found, notes=found.notes + told)


def confirmed(session: Session, found: Plan, budget_bytes: Optional[int],
              record: Mapping[str, Any], started_s: float) -> Plan:
    """A solver's answer with its symbol, confirmed by binding that symbol."""
    planned = session.apply(found)
    bound = session.read(planned)
    pool_bytes, on_device = session.bound_bytes(bound, planned, found.storage)
    notes = found.notes
    if pool_bytes != found.pool_bytes:
        notes += ("the pool is what MXNet allocates, %d bytes; %d were predicted"
                  % (pool_bytes, found.pool_bytes),)
        logger.warning(notes[-1])
    taken = Footprint(pool_bytes, {**found.fixed_bytes, **on_device},
                      found.pool_bytes if pool_bytes != found.pool_bytes else None)
    resident = replace(taken, outside_bytes={
        name: n for name, n in taken.outside_bytes.items() if name != "never_written"})
    if resident.total_bytes <= (budget_bytes or 0):  # it fits even if all is written
        taken = resident
    found = replace(found, planned=taken, notes=notes)
    return replace(
        _beside_unplanned(session, found), original_json=to_json(session.symbol),
        numpy_arrays=is_numpy(session.symbol), budget_bytes=budget_bytes,
        costs=session.costs, options=dict(record), planning_s=time.perf_counter() - started_s)


def _beside_unplanned(session: Session, found: Plan) -> Plan:
    """``found`` beside what the unplanned network takes on stock MXNet."""
    predicted_bytes = None
    if session.unplanned_pool_bytes != found.baseline_pool_bytes and session.device:
        predicted_bytes = found.baseline_pool_bytes
        note = ("without a plan MXNet fuses point-wise ops there, and its pool takes %d bytes; "
                "unfused, as in planned executors, %d"
                % (session.unplanned_pool_bytes, found.baseline_pool_bytes))
        found = replace(found, notes=(*found.notes, note))
    return replace(found, unplanned=Footprint(
        session.unplanned_pool_bytes, session.unplanned_fixed_bytes, predicted_bytes))
