"""Totals and budgets for each device of a network that is spread over several (``group2ctx``).

MXNet shares no buffer between devices, and what a device recomputes reads nothing of another, so
each device is planned by itself, with what lies elsewhere counted as nothing; the decisions of all
of them together are the plan.
"""
from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Dict, List, Mapping

from ...graph.decisions import Consumer, decisions_of
from ...graph.in_use import graph_in_use
from ...graph.schedule import Schedule, expand
from ...plan import unmet_requests
from ...plan.plan import Budget, Plan, Status
from ...solve.result import build_plan
from ...util import argument_checks as check
from ...util.errors import InfeasibleBudget, InputError
from ...util.messages import listed
from ...util.units import format_distinct, parse_budget
from ..capture.devices import devices_of
from ..memory.stated_gpu import resolve_budget
from .confirmed_plan import confirmed, method_of, offering, record_of, search_options
from .network import Session, open_session
from .planning import plan_session
from .requests import Binding, PlanRequest

#: How often a plan is searched that the bound executor must confirm.
_ATTEMPTS = 3
#: The status of a plan is the first of these that any of its parts has.
_WORST_FIRST = (Status.INTERRUPTED, Status.TIME_LIMIT, Status.FEASIBLE, Status.OPTIMAL,
                Status.NOT_NEEDED)


def totals_by_device(symbol: Any, session: Session, costs: Any) -> Dict[str, int]:
    """Bytes of a training step on each device, for a form of the session's network.

    {} for a network on one device. Each device has its own workspace and its own rounding, so on
    GPUs, or with workspaces, these are more together than the network's total.
    """
    return {name: open_session(symbol, replace(session.binding, only=name), costs,
                               as_it_is=True).estimate().total_bytes
            for name in devices_of(session.captured)}


def beside_devices(plan: Plan, session: Session, costs: Any) -> Plan:
    """A plan of a network on several devices with the totals of each; others as they are."""
    if not session.captured.contexts:
        return plan
    planned = totals_by_device(plan.symbol, session, costs)
    unplanned = totals_by_device(session.symbol, session, costs)
    return replace(plan, by_device={
        name: {"total_bytes": total, "unplanned_total_bytes": unplanned[name]}
        for name, total in planned.items()})


def plan_over_devices(symbol: Any, binding: Binding, costs: Any, request: PlanRequest,
                      budgets: Mapping[str, Budget]) -> Plan:
    """A plan that keeps each device within its budget.

    ``budgets``: by the device's name, "gpu(1)", each as for :func:`memonger.plan`; a share is of
        the device's own unplanned total. A device without a budget keeps everything.

    Raises InfeasibleBudget, with the device's name and bytes, if no plan was found for a device.
    Raises InputError if the network does not use a device that has a budget.
    """
    started_s = time.perf_counter()
    if request.overhead is not None:
        raise InputError("give a budget or an overhead, not both")
    whole = open_session(symbol, binding, costs)
    sessions = _sessions(symbol, whole, costs, budgets)
    limits = {name: _bytes(budgets[name], session) for name, session in sessions.items()}
    request = replace(request, time_limit=request.time_limit / len(limits))
    left = dict(limits)
    parts: Dict[str, Plan] = {}
    for _ in range(_ATTEMPTS):
        for name, budget_bytes in left.items():
            parts[name] = _planned_on(name, sessions[name], replace(request, budget=budget_bytes))
        plan = _together(whole, list(parts.values()), request, dict(budgets), limits, started_s)
        plan = beside_devices(plan, whole, costs)
        excess = {name: plan.by_device[name]["total_bytes"] - limit
                  for name, limit in limits.items()
                  if plan.by_device[name]["total_bytes"] > limit}
        if not excess:
            return replace(plan, by_device={
                name: {**totals, **({"budget_bytes": limits[name]} if name in limits else {})}
                for name, totals in plan.by_device.items()})
        left = {name: left[name] - more - left[name] // 500 for name, more in excess.items()}
    name, more = max(excess.items(), key=lambda item: item[1])
    asked, least = format_distinct(limits[name], limits[name] + more)
    raise InfeasibleBudget(
        "on %s no plan was found whose executor takes no more than %s: the smallest takes %s"
        % (name, asked, least), limits[name], limits[name] + more, best_plan=plan)


def _bytes(budget: Budget, session: Session) -> int:
    """A budget for the device of a session."""
    resolved = resolve_budget(budget, session.binding.memory_ctx)
    if resolved is None:
        raise InputError("a budget for a device is a size or a share, not None")
    return parse_budget(resolved, session.unplanned_total_bytes)


def _sessions(symbol: Any, whole: Session, costs: Any,
              budgets: Mapping[str, Budget]) -> Dict[str, Session]:
    """One for each device that has a budget."""
    names = devices_of(whole.captured)
    if not names:
        raise InputError("budgets for several devices are for a network that group2ctx spreads "
                         "over them; this one runs on %s: give one budget"
                         % (whole.binding.ctx or "cpu(0)"))
    check.mapping("budget", budgets, '{"gpu(0)": "8GB", "gpu(1)": "6GB"}')
    unknown = [name for name in budgets if name not in names]
    if unknown or not budgets:
        raise InputError("budget names %s, and the network runs on %s"
                         % (listed([check.shown(name) for name in unknown]) or "no device",
                            listed(names)))
    return {name: open_session(symbol, replace(whole.binding, only=name), costs)
            for name in budgets}


def _planned_on(name: str, session: Session, request: PlanRequest) -> Plan:
    """The plan for one device; errors name it."""
    try:
        return plan_session(session, request)
    except InfeasibleBudget as error:
        error.args = ("on %s %s" % (name, error),)
        raise


def _together(whole: Session, parts: List[Plan], request: PlanRequest,
              budgets: Mapping[str, Budget], limits: Mapping[str, int], started_s: float) -> Plan:
    """The decisions of all devices as a plan of the network, confirmed by binding it."""
    method = method_of(request)
    whole = offering(whole, request, method)
    number_of = {(offer.name, offer.choices): number
                 for number, offer in enumerate(whole.graph.variants)}
    variants: List[int] = []
    recompute: Dict[int, Dict[Consumer, int]] = {}
    for part in parts:
        recompute.update(decisions_of(part.graph, part.schedule))
        offers = part.graph.variants
        variants += [number_of[offers[i].name, offers[i].choices] for i in part.schedule.variants]
    chosen = Schedule((), tuple(sorted(variants)))
    schedule = replace(chosen, steps=expand(graph_in_use(whole.graph, chosen), recompute).steps)
    status = min((part.status for part in parts), key=_WORST_FIRST.index)
    options = search_options(whole, request, whole.fixed_bytes)
    plan = build_plan(whole.graph, schedule, method, options, None, status,
                      unmet_requests.notes(whole.graph, schedule, options.recompute))
    everywhere = set(limits) == set(devices_of(whole.captured))
    plan = confirmed(whole, plan, sum(limits.values()) if everywhere else None,
                     {**record_of(whole, request, method), "budget": budgets}, started_s)
    return replace(plan, bound=min(plan.overhead, sum(part.bound for part in parts)))

