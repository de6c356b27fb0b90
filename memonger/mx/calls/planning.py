"""A plan for a network that was read: the best that a few searches find."""
from __future__ import annotations

import time
from dataclasses import replace
from typing import Iterator, Optional, Tuple

from ...plan.plan import Plan, Status
from ...report.progress import part_of
from ...solve.effort import ALL_SEARCHES, LEAST_SEARCH, Effort
from ...solve.result import refusal
from ...util.errors import InfeasibleBudget, NoPlanInTime
from ...util.units import format_bytes
from .confirmed_plan import WITHOUT_VARIANTS, confirmed_plan, offering
from .network import Session
from .requests import PlanRequest


def plan_session(session: Session, request: PlanRequest,
                 started_s: Optional[float] = None) -> Plan:
    """:func:`memonger.plan` for a network that was read already."""
    started_s = time.perf_counter() if started_s is None else started_s
    account = Effort(ALL_SEARCHES * request.time_limit)
    try:
        asked: Optional[Plan] = confirmed_plan(session, request, started_s, account)
        refused: Optional[InfeasibleBudget] = None
    except InfeasibleBudget as error:
        asked, refused = None, error
    best, chosen, bound_bytes = asked, session, refused.bound_bytes if refused else 0
    alternatives = list(_alternatives(session, request))
    for number, (tried, changed) in enumerate(alternatives, 2):
        # Each is searched only where it may help.
        changed = replace(changed, progress=part_of(
            changed.progress, "search %d of at most %d" % (number, 1 + len(alternatives)),
            started_s))
        if not _may_be_better(changed, request, session, best, refused) \
                or best is not None and account.left_s < LEAST_SEARCH * request.time_limit:
            continue
        try:
            plan = confirmed_plan(tried, changed, started_s, account)
        except InfeasibleBudget as error:
            if refused is None or error.minimum_bytes < refused.minimum_bytes:
                refused = error
            continue
        except (KeyboardInterrupt, NoPlanInTime):
            if best is None:
                raise
            break
        if best is None or _rank(plan, request) < _rank(best, request):
            best, chosen = plan, tried
    if best is None:
        assert refused is not None
        if refused.bound_bytes > bound_bytes and isinstance(refused.best_plan, Plan):
            refused = refusal(replace(refused.best_plan, minimum_total_bytes=bound_bytes))
        refused.args = ("%s. Unplanned, the network takes %s; a smaller batch takes less" % (
            refused, format_bytes(session.unplanned_total_bytes)),)
        raise refused
    if best is asked:
        return best
    # What is proven holds for one kind of storage.
    return _with_proof(best, asked if chosen is session else None, session, request)


def _with_proof(plan: Plan, asked: Optional[Plan], session: Session, request: PlanRequest) -> Plan:
    """A plan with fewer variants, with what ``asked``, of all that were asked for, proves."""
    if asked is None:
        from ...solve.mip.bounds import free_bound
        graph = offering(session, request, request.method).graph
        return replace(plan.with_bound(free_bound(graph, request.variants)),
                       minimum_total_bytes=None)
    least_bytes = asked.minimum_total_bytes
    return replace(plan.with_bound(asked.bound), minimum_total_bytes=least_bytes
                   if least_bytes is None else min(least_bytes, plan.total_bytes))


def _alternatives(session: Session, request: PlanRequest
                  ) -> Iterator[Tuple[Session, PlanRequest]]:
    """Whole buffers on a GPU, and no variants, where bytes outside the pool decide.

    On a GPU an arena or variants may take more than they save: an arena is allocated before MXNet
    tunes convolutions, whole buffers after it; variants may need random states, and small
    allocations are rounded up to pages.
    """
    in_buffers = session
    if session.device is not None:
        in_buffers = replace(session, has_arena=session.has_arena and not session.tunes)
        if in_buffers.storage != session.storage:
            yield in_buffers, request
    if request.variants != "none" and request.method not in WITHOUT_VARIANTS:
        yield in_buffers, replace(request, variants="none")


def _may_be_better(changed: PlanRequest, request: PlanRequest, session: Session,
                   best: Optional[Plan], refused: Optional[InfeasibleBudget]) -> bool:
    """Whether an alternative is worth its work after what the searches before it gave."""
    if best is None:
        assert refused is not None
        # Where a search proves a bound, it has tried fewer variants, but not their bytes on a GPU.
        return refused.bound_bytes <= refused.budget_bytes and (
            session.device is not None or not refused.bound_bytes)
    if best.status is Status.INTERRUPTED or request.budget is not None:
        return False
    if changed.variants == request.variants:
        return best.fixed_bytes.get("autotuning", 0) > 0
    return best.total_bytes > best.baseline_total_bytes


def _rank(plan: Plan, request: PlanRequest) -> Tuple[float, float]:
    """Less is better: time within a budget, else bytes."""
    if request.budget is not None:
        return plan.overhead, plan.total_bytes
    return plan.total_bytes, plan.overhead
