"""One search for a plan, and what the framework takes with it."""
from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any, List, Mapping, Optional

from ..graph.types import Graph
from ..plans import unmet_requests
from ..plans.plan import Plan, Status
from ..solve import Options, solve
from ..solve.effort import Effort
from ..solve.mip.bounds import free_bound
from ..util import signals as interrupts
from ..util.errors import InfeasibleBudget, InputError
from ..util.units import format_bytes
from .attempts import Attempt, is_accepted, limited, next_budget, no_plan
from .network import Network
from .requests import PlanRequest, share_of
from .search_options import offered, record_of, search_options

logger = logging.getLogger("memonger")
#: How many plans are searched at most until the framework confirms one.
ATTEMPTS = 3


def confirmed_plan(network: Network, request: PlanRequest, started_s: float,
                   account: Effort) -> Plan:
    """A solver's answer to the request, with the bytes that the framework takes.

    The framework may take more than the graph says: it runs networks with variants in another order
    than predicted, and copies arrays between layouts. What is foreseen of that is left free by the
    first search, which is repeated with another budget where it was too little or too much.

    ``account``: the work that the call has left.

    Raises InfeasibleBudget if no plan was found that stays within the budget.
    Raises InputError if the request does not fit the network.
    """
    network, limits = limited(offered(network, request), request)
    options = search_options(network, request, limits.outside_bytes)
    record = record_of(network, request)
    logger.info("read %d forward ops, unplanned total %s; op times: %s", network.graph.num_forward,
                format_bytes(network.unplanned.total_bytes), network.costs)
    logger.info("searching with method %s for %s", request.method, "the least memory"
                if limits.pool_bytes is None
                else "a pool of at most %s" % format_bytes(limits.pool_bytes))
    attempts: List[Attempt] = []
    tried_bytes = None if limits.pool_bytes is None else limits.pool_bytes - limits.reserve_bytes
    for number in range(ATTEMPTS):
        refused: Optional[InfeasibleBudget] = None
        try:
            answer = _searched(network.graph, tried_bytes, request.method, replace(
                options, account=account, time_limit_s=min(
                    options.time_limit_s, max(account.left_s, 0.01))))
        except InfeasibleBudget as error:
            best = error.best_plan
            if isinstance(best, Plan) and (number or limits.reserve_bytes) \
                    and request.host_budget_bytes is None:
                refused, answer = error, best  # which may fit the caller's budget
            elif attempts:
                break  # the error would name the lowered budget, not the caller's
            else:
                if isinstance(best, Plan):
                    error.best_plan = network.as_plan(best).changed(
                        options=record, planning_s=time.perf_counter() - started_s)
                raise
        if not options.recompute:  # what must run again may take more
            _check_overhead(answer, request)
        if tried_bytes != limits.pool_bytes:  # what is proven holds for the budget that was tried
            answer = answer.with_bound(free_bound(network.graph, request.variants))
        with interrupts.deferred():  # the answer would be lost
            made = confirmed(network, answer, limits.total_bytes, record, started_s)
        attempt = Attempt(number, tried_bytes, answer, made, refused)
        if is_accepted(network, limits, attempt):
            return made
        attempts.append(attempt)
        tried_bytes = next_budget(network, limits, attempt)
        if tried_bytes is None:
            break
    raise no_plan(network, limits, attempts)


def _check_overhead(answer: Plan, request: PlanRequest) -> None:
    """Raise InputError where a method ignored the overhead that was asked for."""
    most = share_of(request.overhead)
    if most is not None and answer.overhead > most + 1e-6:
        raise InputError(
            "method %r gives a plan of %+.1f %% time, more than the overhead asked for, %.1f %%; "
            "method 'auto' keeps to it" % (request.method, 100 * answer.overhead, 100 * most))


def _searched(graph: Graph, pool_budget: Optional[int], method: str, options: Options) -> Plan:
    """A solver's answer, with notes on what it could not do as asked."""
    answer = solve(graph, pool_budget, method, options)
    logger.info("%s: pool %s, %+.1f %% time", answer.status.value,
                format_bytes(answer.pool_bytes), 100 * answer.overhead)
    told = unmet_requests.notes(graph, answer.schedule, options.recompute)
    return answer.changed(notes=answer.notes + told)


def confirmed(network: Network, answer: Plan, budget_bytes: Optional[int],
              record: Mapping[str, Any], started_s: float) -> Plan:
    """A solver's answer as a plan of the network, with the bytes that the framework takes."""
    plan = network.confirm(answer, network.apply(answer))
    resident = replace(plan.planned, outside_bytes={
        name: size for name, size in plan.planned.outside_bytes.items()
        if name != "never_written"})
    if resident.total_bytes <= (budget_bytes or 0):  # it fits even if all is written
        plan = plan.changed(planned=resident)
    if plan.status is Status.NOT_NEEDED and plan.baseline_total_bytes > (budget_bytes or 0):
        # Unplanned, bytes outside the pool are more: copies of arrays in other layouts.
        plan = plan.changed(status=Status.OPTIMAL).with_bound(plan.bound)
    return plan.changed(budget_bytes=budget_bytes, options=dict(record),
                        planning_s=time.perf_counter() - started_s)
