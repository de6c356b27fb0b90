"""A plan for a network that was read: what solvers are asked, and what MXNet answers to theirs."""
from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any, Iterator, Mapping, Optional, Tuple

from ..mx import plugin as native
from ..plan import unmet_requests
from ..plan.plan import Plan, Status
from ..solve.strategy import STRATEGY
from ..util import signals as interrupts
from ..util.errors import InfeasibleBudget, InputError, NoPlanInTime, PluginError
from ..util.units import format_bytes, format_distinct, parse_budget
from ..variants.common_subexpressions import to_json
from .inputs import pins, share_of
from .network import Session
from .requests import PlanRequest

logger = logging.getLogger("memonger")
#: How often a plan is searched that the bound executor must confirm.
_ATTEMPTS = 3
#: Methods that use no variants.
_WITHOUT_VARIANTS = ("sublinear", "chen", "ogc")


def plan_session(session: Session, request: PlanRequest,
                 started_s: Optional[float] = None) -> Plan:
    """:func:`memonger.plan` for a network that was read already."""
    started_s = time.perf_counter() if started_s is None else started_s
    best: Optional[Plan] = None
    refused: Optional[InfeasibleBudget] = None
    for tried, way in _ways(session, request):
        if not _may_be_better(tried, way, request, best, refused):
            continue
        try:
            made = _plan(tried, way, started_s)
        except InfeasibleBudget as error:
            if refused is None or error.minimum_bytes < refused.minimum_bytes:
                refused = error
            continue
        except (KeyboardInterrupt, NoPlanInTime):
            if best is None:
                raise
            break
        if best is None or _rank(made, request) < _rank(best, request):
            best = made
    if best is None:
        assert refused is not None
        refused.args = ("%s. As it is the network takes %s" % (
            refused, format_bytes(session.unplanned_total_bytes)),)
        raise refused
    return best


def _ways(session: Session, request: PlanRequest) -> Iterator[Tuple[Session, PlanRequest]]:
    """What to plan: the request, then fewer variants, where a search may find what it missed.

    On a GPU also what takes less than it saves: an arena is there while convolutions are tuned,
    whole buffers come later; variants may draw random states, and pages round up.
    """
    yield session, request
    in_buffers = session
    if session.device is not None:
        in_buffers = replace(session, has_arena=session.has_arena and not session.tunes)
        if in_buffers.storage != session.storage:
            yield in_buffers, request
    if request.variants != "none" and request.method not in _WITHOUT_VARIANTS:
        if request.variants == "all":
            yield session, replace(request, variants="exact")
        yield in_buffers, replace(request, variants="none")


def _may_be_better(session: Session, way: PlanRequest, request: PlanRequest, best: Optional[Plan],
                   refused: Optional[InfeasibleBudget]) -> bool:
    """Whether another way of :func:`_ways` is worth its time after what the earlier ones gave."""
    if best is None:  # nothing fits so far; what is proven impossible stays so with fewer variants
        return refused is None or refused.bound_bytes <= refused.budget_bytes
    if best.status is Status.INTERRUPTED:
        return False
    if way.variants == "exact" != request.variants:
        return _is_far(best, request) and (
            session.device is not None or _least_overhead(best, "exact") <= best.overhead)
    if request.budget is not None:
        return False
    if way.variants == request.variants:
        return best.fixed_bytes.get("autotuning", 0) > 0
    return best.total_bytes > best.baseline_total_bytes


def _is_far(plan: Plan, request: PlanRequest) -> bool:
    """Whether a plan may be improved by more than a search calls near enough."""
    if request.budget is not None:
        return plan.overhead - plan.bound > STRATEGY.target_gap
    return plan.total_bytes > (plan.minimum_total_bytes or 0)


def _least_overhead(plan: Plan, variants: str) -> float:
    """No plan with these variants, within the budget of ``plan``, costs less on a CPU.

    By one linear program, which takes a tenth of a search.
    """
    if plan.budget_bytes is None:
        return float("-inf")
    from ..solve.mip.bounds import overhead_bound, pool_limit_bytes
    fixed_bytes = sum(size for name, size in plan.fixed_bytes.items() if name != "workspace")
    limit_bytes = pool_limit_bytes(plan.graph, plan.budget_bytes - fixed_bytes, variants)
    bound = overhead_bound(plan.graph, limit_bytes, variants, rounds=1, integer=False)
    return bound.extra_s / plan.graph.time_s


def _rank(plan: Plan, request: PlanRequest) -> Tuple[float, float]:
    """Less is better: time within a budget, else bytes."""
    if request.budget is not None:
        return plan.overhead, plan.total_bytes
    return plan.total_bytes, plan.overhead


def _plan(session: Session, request: PlanRequest, started_s: float) -> Plan:
    from ..solve import solve
    from ..solve.options import Options
    budget, overhead, variants = request.budget, request.overhead, request.variants
    method, keep, recompute = request.method, request.keep, request.recompute
    if native.backend() == "stock":
        if method not in ("auto", "sublinear"):
            raise PluginError("method %r needs the plugin's exact recomputation, which is switched "
                              "off; memonger.native.enable() switches it on, and method sublinear "
                              "plans for MXNet's own mirroring" % method)
        method = "sublinear"
    if request.name:
        session = replace(session, graph=replace(session.graph, name=request.name))
    if variants != "none" and native.backend() == "plugin" and \
            method not in _WITHOUT_VARIANTS:
        session = session.with_variants(exact_only=variants == "exact")
    graph = session.graph
    fixed_bytes = dict(session.fixed_bytes)
    total_budget = pool_budget = None
    if budget is not None:
        total_budget = parse_budget(budget, session.unplanned_total_bytes)
        if total_budget >= session.unplanned_total_bytes:  # so are its ops' workspaces
            session = session.as_unplanned()
            graph = session.graph
        pool_budget, fixed_bytes = session.pool_within(total_budget)
    max_overhead = share_of(overhead)
    if budget is None and overhead is None and graph.time_s > 0:
        max_overhead = graph.forward_time_s / graph.time_s  # one extra forward pass
    kept, again = pins(graph, keep, "keep"), pins(graph, recompute, "recompute")
    both = [graph.ops[i].name for i in kept if i in set(again)]
    if both:
        raise InputError("op %r is both to be kept and to be recomputed" % both[0])
    for index, op in enumerate(graph.ops):  # what the caller says goes before the symbol's marks
        if op.force_mirroring == "True" and op.recomputable and index not in kept:
            again += (index,)
        elif op.force_mirroring == "False" and not op.is_backward and index not in again:
            kept += (index,)
    options = Options(
        time_limit_s=request.time_limit, storage=session.storage, backend=native.backend(),
        variants=variants, keep=kept, recompute=again, progress=request.progress,
        costs=session.costs,
        objective="memory" if budget is None else "time", max_overhead=max_overhead,
        fixed_bytes=fixed_bytes, on_gpu=session.binding.on_gpu, max_clones=request.max_clones)
    record = {"budget": budget, "method": method, "variants": variants, "overhead": overhead,
              "keep": tuple(keep), "recompute": tuple(recompute),
              **({"max_clones": request.max_clones} if request.max_clones else {}),
              **session.record}
    # Where MXNet runs a network with variants in another order than predicted, its pool may come
    # out a little larger; then the search has a little less.
    logger.info("read %d forward ops, unplanned total %s; op times: %s", graph.num_forward,
                format_bytes(session.unplanned_total_bytes), session.costs)
    logger.info("searching with method %s for %s", method, "the least memory"
                if pool_budget is None else "a pool of at most %s" % format_bytes(pool_budget))
    smallest: Optional[Plan] = None
    for _ in range(_ATTEMPTS):
        try:
            found = solve(graph, pool_budget, method, options)
        except InfeasibleBudget as error:
            if smallest is None:
                best = error.best_plan
                if isinstance(best, Plan):
                    error.best_plan = replace(
                        best, original_json=to_json(session.symbol), options=dict(record),
                        symbol_json=to_json(session.apply(best)))
                raise
            break  # it tells of less than the caller's budget
        logger.info("%s: pool %s, %+.1f %% time", found.status.value,
                    format_bytes(found.pool_bytes), 100 * found.overhead)
        told = (unmet_requests.kept_note(graph), unmet_requests.note(graph, found.schedule, again))
        found = replace(found, notes=(*found.notes, *filter(None, told)))
        with interrupts.deferred():  # what was found would be lost
            made = _finish(session, found, total_budget, record, started_s)
        excess_bytes = 0 if total_budget is None else made.total_bytes - total_budget
        if excess_bytes <= 0 or (made.pool_bytes == found.pool_bytes and session.device is None):
            return made
        assert pool_budget is not None and total_budget is not None
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


def _finish(session: Session, found: Plan, budget_bytes: Optional[int],
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
        found = replace(found, predicted_pool_bytes=found.pool_bytes)
    if session.unplanned_pool_bytes != found.baseline_pool_bytes and session.device:
        notes += ("without a plan MXNet fuses point-wise ops there, and its pool takes %d bytes; "
                  "unfused, as in planned executors, %d"
                  % (session.unplanned_pool_bytes, found.baseline_pool_bytes),)
        found = replace(found, baseline_pool_bytes=session.unplanned_pool_bytes,
                        predicted_baseline_pool_bytes=found.baseline_pool_bytes)
    found = replace(found, fixed_bytes={**found.fixed_bytes, **on_device})
    unplanned_fixed_bytes = session.unplanned_fixed_bytes
    if unplanned_fixed_bytes != found.fixed_bytes:
        found = replace(found, baseline_fixed_bytes=unplanned_fixed_bytes)
    return replace(
        found, original_json=to_json(session.symbol), symbol_json=to_json(planned),
        pool_bytes=pool_bytes, budget_bytes=budget_bytes, costs=session.costs, notes=notes,
        options=dict(record), planning_s=time.perf_counter() - started_s)
