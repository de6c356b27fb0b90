"""A plan for a network that was read: the best that a few searches find."""
from __future__ import annotations

import time
from dataclasses import replace
from typing import Iterator, Optional, Tuple

from ...plan.plan import Plan, Status
from ...solve.auto import TARGET_GAP
from ...solve.effort import Effort
from ...solve.result import BY_SCHEDULE, refusal
from ...util.errors import InfeasibleBudget, NoPlanInTime
from ...util.units import format_bytes
from .confirmed_plan import WITHOUT_VARIANTS, confirmed_plan, offering
from .network import Session
from .requests import PlanRequest

#: What all searches of a call may take together, as a multiple of the time limit; where there is a
#: plan already, one that could take less than the second share is left out.
_WHOLE, _LEAST = 1.3, 0.1


def plan_session(session: Session, request: PlanRequest,
                 started_s: Optional[float] = None) -> Plan:
    """:func:`memonger.plan` for a network that was read already."""
    started_s = time.perf_counter() if started_s is None else started_s
    account = Effort(_WHOLE * request.time_limit)
    best: Optional[Plan] = None
    asked: Optional[Plan] = None
    chosen = session
    refused: Optional[InfeasibleBudget] = None
    bound_bytes = 0
    for tried, way in _ways(session, request):
        if not _may_be_better(tried, way, request, best, refused) \
                or best is not None and account.left_s < _LEAST * request.time_limit:
            continue
        try:
            made = confirmed_plan(tried, way, started_s, account)
            if tried is session and way is request:
                asked = made
        except InfeasibleBudget as error:
            if refused is None:
                bound_bytes = error.bound_bytes
            if refused is None or error.minimum_bytes < refused.minimum_bytes:
                refused = error
            continue
        except (KeyboardInterrupt, NoPlanInTime):
            if best is None:
                raise
            break
        if best is None or _rank(made, request) < _rank(best, request):
            best, chosen = made, tried
    if best is None:
        assert refused is not None
        if refused.bound_bytes > bound_bytes and isinstance(refused.best_plan, Plan):
            refused = refusal(replace(refused.best_plan, minimum_total_bytes=bound_bytes))
        refused.args = ("%s. As it is the network takes %s" % (
            refused, format_bytes(session.unplanned_total_bytes)),)
        raise refused
    if best is asked:
        return best
    # What is proven holds for one kind of storage.
    return _with_proof(best, asked if chosen is session else None, session, request)


def _with_proof(plan: Plan, asked: Optional[Plan], session: Session, request: PlanRequest) -> Plan:
    """A plan with fewer variants, with what is proven for all that were asked for.

    ``asked`` is the plan of the search with all of them; None where there is none.
    """
    if asked is None:
        from ...solve.mip.bounds import free_bound
        graph = offering(session, request, request.method).graph
        return replace(plan.with_bound(free_bound(graph, request.variants)),
                       minimum_total_bytes=None)
    least_bytes = asked.minimum_total_bytes
    return replace(plan.with_bound(asked.bound), minimum_total_bytes=least_bytes
                   if least_bytes is None else min(least_bytes, plan.total_bytes))


def _ways(session: Session, request: PlanRequest) -> Iterator[Tuple[Session, PlanRequest]]:
    """What to plan: the request, then fewer variants, where a search may find what it missed.

    On a GPU an arena or variants may take more than they save: an arena is allocated before MXNet
    tunes convolutions, whole buffers after it; variants may need random states, and small
    allocations are rounded up to pages.
    """
    yield session, request
    in_buffers = session
    if session.device is not None:
        in_buffers = replace(session, has_arena=session.has_arena and not session.tunes)
        if in_buffers.storage != session.storage:
            yield in_buffers, request
    if request.variants != "none" and request.method not in WITHOUT_VARIANTS:
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
        return plan.overhead - plan.bound > TARGET_GAP
    return plan.total_bytes > (plan.minimum_total_bytes or 0)


def _least_overhead(plan: Plan, variants: str) -> float:
    """No plan with these variants, within the budget of ``plan``, costs less on a CPU.

    By one linear program, which takes a tenth of a search.
    """
    if plan.budget_bytes is None:
        return float("-inf")
    from ...solve.mip.bounds import overhead_bound, pool_limit_bytes
    fixed_bytes = sum(size for name, size in plan.fixed_bytes.items() if name not in BY_SCHEDULE)
    limit_bytes = pool_limit_bytes(plan.graph, plan.budget_bytes - fixed_bytes, variants)
    bound = overhead_bound(plan.graph, limit_bytes, variants, rounds=1)
    return bound.extra_s / plan.graph.time_s


def _rank(plan: Plan, request: PlanRequest) -> Tuple[float, float]:
    """Less is better: time within a budget, else bytes."""
    if request.budget is not None:
        return plan.overhead, plan.total_bytes
    return plan.total_bytes, plan.overhead
