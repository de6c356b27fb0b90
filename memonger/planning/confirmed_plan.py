"""One search for a plan, and what the framework takes with it."""
from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any, Dict, Mapping, Optional, Tuple

from ..graph.decisions import carried_over
from ..graph.types import Graph
from ..plans import unmet_requests
from ..plans.plan import Plan, Status
from ..solve import Options, solve
from ..solve.effort import Effort
from ..solve.mip.bounds import free_bound
from ..solve.options import USUAL_TIME_LIMIT_S
from ..solve.result import refusal
from ..util import signals as interrupts
from ..util.errors import InfeasibleBudget, InputError
from ..util.units import format_bytes, format_distinct, parse_budget
from .network import Network
from .requests import PlanRequest, pins, share_of

logger = logging.getLogger("memonger")
#: How many plans are searched at most until the framework confirms one.
ATTEMPTS = 3
#: Methods that use no variants.
WITHOUT_VARIANTS = ("sublinear", "chen", "ogc")


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
    network = offered(network, request)
    outside_bytes = network.outside_bytes
    total_budget = pool_budget = None
    most_bytes = reserve_bytes = 0
    if request.budget is not None:
        whole_bytes = network.unplanned.total_bytes
        total_budget = parse_budget(request.budget, whole_bytes)
        if total_budget >= whole_bytes:  # nothing changes: count it unplanned
            network = network.as_it_comes()
        else:
            reserve_bytes = network.reserve_bytes
        allowed = network.pool_within(total_budget)
        pool_budget, outside_bytes = allowed.pool_bytes, allowed.outside_bytes
        most_bytes = max(total_budget, allowed.total_bytes)
    options = search_options(network, request, outside_bytes)
    record = record_of(network, request)
    logger.info("read %d forward ops, unplanned total %s; op times: %s", network.graph.num_forward,
                format_bytes(network.unplanned.total_bytes), network.costs)
    logger.info("searching with method %s for %s", request.method, "the least memory"
                if pool_budget is None else "a pool of at most %s" % format_bytes(pool_budget))
    smallest: Optional[Plan] = None
    tried_bytes = None if pool_budget is None else pool_budget - reserve_bytes
    refusals: Dict[int, InfeasibleBudget] = {}
    for attempt in range(ATTEMPTS):
        try:
            answer = _searched(network.graph, tried_bytes, request.method, replace(
                options, account=account, time_limit_s=min(
                    options.time_limit_s, max(account.left_s, 0.01))))
        except InfeasibleBudget as error:
            best = error.best_plan
            if isinstance(best, Plan) and (attempt or reserve_bytes) \
                    and request.host_budget_bytes is None:
                refusals[attempt], answer = error, best  # which may fit the caller's budget
            elif smallest is not None:
                break  # the error would name the lowered budget, not the caller's
            else:
                if isinstance(best, Plan):
                    error.best_plan = network.as_plan(best).changed(
                        options=record, planning_s=time.perf_counter() - started_s)
                raise
        if not options.recompute:  # what must run again may take more
            _check_overhead(answer, request)
        if tried_bytes != pool_budget:  # what is proven holds for the budget that was tried
            answer = answer.with_bound(free_bound(network.graph, request.variants))
        with interrupts.deferred():  # the answer would be lost
            made = confirmed(network, answer, total_budget, record, started_s)
        excess_bytes = 0 if total_budget is None else made.total_bytes - most_bytes
        foreseen = network.is_foreseen and made.pool_bytes == answer.pool_bytes \
            and sum(made.fixed_bytes.values()) <= sum(answer.fixed_bytes.values())
        if excess_bytes <= 0 or foreseen and attempt not in refusals:
            return made
        assert total_budget is not None and pool_budget is not None and tried_bytes is not None
        if smallest is None or made.total_bytes < smallest.total_bytes:
            smallest = made
        more_bytes = sum(made.fixed_bytes.values()) - sum(answer.fixed_bytes.values())
        if attempt not in refusals:
            tried_bytes = lowered(tried_bytes, excess_bytes)
            if network.is_foreseen:  # another plan's copies are most likely as large
                tried_bytes = min(tried_bytes, pool_budget - more_bytes)
        elif attempt == 0 and more_bytes < reserve_bytes \
                and refusals[attempt].bound_bytes <= total_budget:
            tried_bytes = pool_budget - more_bytes
        else:
            break
    assert smallest is not None and total_budget is not None
    if 0 in refusals:
        raise refusal(smallest)
    raise InfeasibleBudget(
        "no plan was found that takes no more than %s: the smallest takes %s"
        % format_distinct(total_budget, smallest.total_bytes) + network.advice(smallest),
        total_budget, smallest.total_bytes, best_plan=smallest)


def lowered(budget_bytes: int, excess_bytes: int) -> int:
    """The budget to search with after a plan took ``excess_bytes`` too much."""
    return budget_bytes - excess_bytes - budget_bytes // 500


def offered(network: Network, request: PlanRequest) -> Network:
    """The network, named as asked and with the variants that method and request allow.

    An op that is to run again stays itself, and one that is to be kept is not fused with others.
    """
    if request.name:
        network = network.named(request.name)
    if request.method in WITHOUT_VARIANTS:
        return network
    network = network.offering(request.variants)
    graph = network.graph
    kept, again = map(frozenset, pinned(network, request))
    again = frozenset(op for op in again if graph.ops[op].recomputable)
    refused = [number for number in range(len(graph.variants)) if any(
        op in again or op in kept and not implementation.runs
        for op, implementation in graph.implementations_of(number))]
    return network.without_variants(refused) if refused else network


def pinned(network: Network, request: PlanRequest) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """Ids of the ops that are to be kept, and of those that are to run again.

    Raises InputError if an op is asked to do both.
    """
    graph = network.graph
    kept, again = pins(graph, request.keep, "keep"), pins(graph, request.recompute, "recompute")
    kept, again = (tuple(i for i in ops if i not in network.elsewhere) for ops in (kept, again))
    both = [graph.ops[i].name for i in kept if i in set(again)]
    if both:
        raise InputError("op %r is both to be kept and to be recomputed" % both[0])
    for index, op in enumerate(graph.ops):  # what the caller says goes before the network's marks
        if op.force_mirroring == "True" and op.recomputable and index not in kept:
            again += (index,)
        elif op.force_mirroring == "False" and not op.is_backward and index not in again:
            kept += (index,)
    return kept, again


def search_options(network: Network, request: PlanRequest,
                   outside_bytes: Mapping[str, int]) -> Options:
    """The request as a solver takes it: with ids of ops, and how the network runs plans."""
    graph = network.graph
    max_overhead = share_of(request.overhead)
    if request.budget is None and request.overhead is None and graph.time_s > 0:
        max_overhead = graph.forward_time_s / graph.time_s  # one extra forward pass
    kept, again = pinned(network, request)
    return Options(
        time_limit_s=request.time_limit, storage=network.storage, variants=request.variants,
        keep=kept, recompute=again, progress=request.progress,
        costs=network.costs, objective="memory" if request.budget is None else "time",
        max_overhead=max_overhead, fixed_bytes=outside_bytes,
        max_clones=request.max_clones, bound=request.prove, without=request.without,
        host_budget_bytes=request.host_budget_bytes,
        given=None if request.given is None else carried_over(
            request.given.graph, request.given.schedule, graph))


def record_of(network: Network, request: PlanRequest) -> Dict[str, Any]:
    """The request and the network's record, as a plan file holds them."""
    limits: Dict[str, Any] = {"max_clones": request.max_clones} if request.max_clones else {}
    if request.host_budget_bytes is not None:
        limits["host_budget_bytes"] = request.host_budget_bytes
    if request.time_limit != USUAL_TIME_LIMIT_S:
        limits["time_limit"] = request.time_limit
    return {"budget": request.budget, "method": request.method, "variants": request.variants,
            "overhead": request.overhead, "keep": tuple(request.keep),
            "recompute": tuple(request.recompute), **limits, **network.record}


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
