"""A plan for a network that was read: the best that a few searches find."""
from __future__ import annotations

import time
from dataclasses import replace
from typing import Iterator, Optional, Tuple

from ..plan.plan import Plan, Status
from ..report.progress import part_of
from ..solve.effort import ALL_SEARCHES, LEAST_SEARCH, Effort
from ..solve.result import refusal
from ..util.errors import InfeasibleBudget, NoPlanInTime
from ..util.units import format_bytes
from .confirmed_plan import WITHOUT_VARIANTS, confirmed_plan, offered
from .network import Network
from .requests import PlanRequest


def plan_network(network: Network, request: PlanRequest,
                 started_s: Optional[float] = None) -> Plan:
    """The plan that is asked for, confirmed by the frontend that read the network.

    Raises InfeasibleBudget if no plan fits; it carries the smallest total found.
    Raises NoPlanInTime if the search was interrupted before it found a plan.
    """
    started_s = time.perf_counter() if started_s is None else started_s
    request = replace(request, method=network.method(request.method))
    account = Effort(ALL_SEARCHES * request.time_limit)
    try:
        asked: Optional[Plan] = confirmed_plan(network, request, started_s, account)
        refused: Optional[InfeasibleBudget] = None
    except InfeasibleBudget as error:
        asked, refused = None, error
    best, chosen, bound_bytes = asked, network, refused.bound_bytes if refused else 0
    alternatives = list(_alternatives(network, request))
    for number, (tried, changed) in enumerate(alternatives, 2):
        # Each is searched only where it may help.
        changed = replace(changed, progress=part_of(
            changed.progress, "search %d of at most %d" % (number, 1 + len(alternatives)),
            started_s))
        if not _may_be_better(changed, request, network, best, refused) \
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
            refused, format_bytes(network.unplanned.total_bytes)),)
        raise refused
    if best is asked:
        return best
    # What is proven holds for one kind of storage.
    return _with_proof(best, asked if chosen is network else None, network, request)


def _with_proof(plan: Plan, asked: Optional[Plan], network: Network, request: PlanRequest) -> Plan:
    """A plan with fewer variants, with what ``asked``, of all that were asked for, proves."""
    if asked is None:
        from ..solve.mip.bounds import free_bound
        graph = offered(network, request).graph
        return replace(plan.with_bound(free_bound(graph, request.variants)),
                       minimum_total_bytes=None)
    least_bytes = asked.minimum_total_bytes
    return replace(plan.with_bound(asked.bound), minimum_total_bytes=least_bytes
                   if least_bytes is None else min(least_bytes, plan.total_bytes))


def _alternatives(network: Network, request: PlanRequest
                  ) -> Iterator[Tuple[Network, PlanRequest]]:
    """Whole buffers on a GPU, and no variants, where bytes outside the pool decide.

    On a GPU an arena or variants may take more than they save: an arena is allocated before MXNet
    tunes convolutions, whole buffers after it; variants may need random states, and small
    allocations are rounded up to pages.
    """
    in_buffers = network.in_whole_buffers()
    if in_buffers is not None:
        yield in_buffers, request
    if request.variants != "none" and request.method not in WITHOUT_VARIANTS:
        yield in_buffers or network, replace(request, variants="none")


def _may_be_better(changed: PlanRequest, request: PlanRequest, network: Network,
                   best: Optional[Plan], refused: Optional[InfeasibleBudget]) -> bool:
    """Whether an alternative is worth its work after what the searches before it gave."""
    if best is None:
        assert refused is not None
        # Where a search proves a bound, it has tried fewer variants, but not bound them.
        return refused.bound_bytes <= refused.budget_bytes and (
            not network.is_foreseen or not refused.bound_bytes)
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
