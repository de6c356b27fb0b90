"""Totals and budgets for each device of a network that is spread over several (``group2ctx``).

MXNet shares no buffer between devices, and what a device recomputes reads nothing of another, so
each device is planned by itself, with what lies elsewhere counted as nothing; the decisions of all
of them together are the plan.
"""
from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional

from ...graph.decisions import Consumer, decisions_of
from ...graph.in_use import graph_in_use
from ...graph.schedule import Schedule, expand
from ...planning.attempts import lowered
from ...planning.confirmed_plan import ATTEMPTS, confirmed
from ...planning.requests import PlanRequest
from ...planning.search_options import offered, record_of, search_options
from ...planning.searches import plan_network
from ...plans import unmet_requests
from ...plans.plan import Budget, Plan, Status
from ...solve.result import build_plan
from ...util import argument_checks as check
from ...util.errors import InfeasibleBudget, InputError
from ...util.messages import listed
from ...util.units import format_distinct, parse_budget
from ..capture.devices import devices_of
from ..memory.stated_gpu import resolve_budget
from .binding import Binding
from .network import BoundNetwork
from .op_times import costs_of_bytes
from .opening import open_network

#: The status of a plan is the first of these that any of its parts has.
_WORST_FIRST = (Status.INTERRUPTED, Status.TIME_LIMIT, Status.FEASIBLE, Status.OPTIMAL,
                Status.NOT_NEEDED)


def totals_by_device(symbol: Any, network: BoundNetwork, costs: Any) -> Dict[str, int]:
    """Bytes of a training step on each device, for a form of the network.

    {} for a network on one device. Each device has its own workspace and its own rounding, so on
    GPUs, or with workspaces, these are more together than the network's total.
    """
    binding = network.runner.binding
    return {name: open_network(symbol, replace(binding, only=name),
                               costs_of_bytes(costs, binding.on_gpu),
                               as_it_is=True).estimate().total_bytes
            for name in devices_of(network.form.captured)}


def beside_devices(plan: Plan, network: BoundNetwork, costs: Any,
                   unplanned: Optional[Mapping[str, int]] = None) -> Plan:
    """A plan for several devices with the totals of each; others as they are.

    ``unplanned``: :func:`totals_by_device` of the network itself, where they are known.
    """
    if not network.form.captured.contexts:
        return plan
    planned = totals_by_device(plan.symbol, network, costs)
    unplanned = unplanned or totals_by_device(network.symbol, network, costs)
    return _with_totals(plan, {
        name: {"total_bytes": total, "unplanned_total_bytes": unplanned[name]}
        for name, total in planned.items()})


def _with_totals(plan: Plan, by_device: Mapping[str, Mapping[str, int]]) -> Plan:
    return plan.changed(record=replace(plan.record, by_device=by_device))


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
    whole = open_network(symbol, binding, costs)
    networks = _networks(symbol, whole, costs, budgets)
    unplanned = totals_by_device(whole.symbol, whole, costs)
    limits = {name: _bytes(budgets[name], network) for name, network in networks.items()}
    request = replace(request, time_limit=request.time_limit / len(limits))
    left = dict(limits)
    parts: Dict[str, Plan] = {}
    for _ in range(ATTEMPTS):
        for name, budget_bytes in left.items():
            parts[name] = _planned_on(name, networks[name], replace(request, budget=budget_bytes))
        plan = _together(whole, list(parts.values()), request, dict(budgets), limits, started_s)
        plan = beside_devices(plan, whole, costs, unplanned)
        excess = {name: plan.by_device[name]["total_bytes"] - limit
                  for name, limit in limits.items()
                  if plan.by_device[name]["total_bytes"] > limit}
        if not excess:
            return _with_totals(plan, {
                name: {**totals, **({"budget_bytes": limits[name]} if name in limits else {})}
                for name, totals in plan.by_device.items()})
        left = {name: lowered(left[name], more) for name, more in excess.items()}
    name, more = max(excess.items(), key=lambda item: item[1])
    asked, least = format_distinct(limits[name], limits[name] + more)
    raise InfeasibleBudget(
        "on %s no plan was found that takes no more than %s: the smallest takes %s"
        % (name, asked, least), limits[name], limits[name] + more, best_plan=plan)


def _bytes(budget: Budget, network: BoundNetwork) -> int:
    """A budget for the device whose memory counts in a network."""
    resolved = resolve_budget(budget, network.runner.binding.memory_ctx)
    if resolved is None:
        raise InputError("a budget for a device is a size or a share, not None")
    return parse_budget(resolved, network.unplanned.total_bytes)


def _networks(symbol: Any, whole: BoundNetwork, costs: Any,
              budgets: Mapping[str, Budget]) -> Dict[str, BoundNetwork]:
    """One for each device that has a budget."""
    binding = whole.runner.binding
    names = devices_of(whole.form.captured)
    if not names:
        raise InputError("budgets for several devices are for a network that group2ctx spreads "
                         "over them; this one runs on %s: give one budget"
                         % (binding.ctx or "cpu(0)"))
    check.mapping("budget", budgets, '{"gpu(0)": "8GB", "gpu(1)": "6GB"}')
    unknown = [name for name in budgets if name not in names]
    if unknown or not budgets:
        raise InputError("budget names %s, and the network runs on %s"
                         % (listed([check.shown(name) for name in unknown]) or "no device",
                            listed(names)))
    return {name: open_network(symbol, replace(binding, only=name), costs)
            for name in budgets}


def _planned_on(name: str, network: BoundNetwork, request: PlanRequest) -> Plan:
    """The plan for one device; errors name it."""
    try:
        return plan_network(network, request)
    except InfeasibleBudget as error:
        error.args = ("on %s %s" % (name, error),)
        raise


def _together(whole: BoundNetwork, parts: List[Plan], request: PlanRequest,
              budgets: Mapping[str, Budget], limits: Mapping[str, int], started_s: float) -> Plan:
    """The decisions of all devices as a plan of the network, confirmed by binding it."""
    network = offered(whole, request)
    number_of = {(offer.name, offer.choices): number
                 for number, offer in enumerate(network.graph.variants)}
    variants: List[int] = []
    recompute: Dict[int, Dict[Consumer, int]] = {}
    for part in parts:
        recompute.update(decisions_of(part.graph, part.schedule))
        offers = part.graph.variants
        variants += [number_of[offers[i].name, offers[i].choices] for i in part.schedule.variants]
    chosen = Schedule((), tuple(sorted(variants)))
    schedule = replace(chosen, steps=expand(graph_in_use(network.graph, chosen), recompute).steps)
    status = min((part.status for part in parts), key=_WORST_FIRST.index)
    options = search_options(network, request, network.outside_bytes)
    plan = build_plan(network.graph, schedule, request.method, options, None, status,
                      unmet_requests.notes(network.graph, schedule, options.recompute))
    everywhere = set(limits) == set(devices_of(whole.form.captured))
    plan = confirmed(network, plan, sum(limits.values()) if everywhere else None,
                     {**record_of(network, request), "budget": budgets}, started_s)
    return plan.changed(bound=min(plan.overhead, sum(part.bound for part in parts)))
