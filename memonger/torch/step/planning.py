"""From a request and a graph that was read to its plan."""
from __future__ import annotations

import logging
import operator
import time
import warnings
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any, Iterable, Iterator, List, Optional, Sequence, Tuple

from ...graph.decisions import carried_over, decisions_of
from ...graph.schedule import Schedule, expand_in_part
from ...graph.types import Graph
from ...planning.search_options import record_of
from ...planning.searches import plan_network
from ...planning.sweeping import at_knee
from ...plans.footprint import Footprint, Footprints
from ...plans.parts import Outcome, Status, Terms
from ...plans.plan import Plan
from ...solve.mip.bounds import free_bound, overhead_bound
from ...util.errors import InfeasibleBudget, PlanMismatch
from ...util.gc_pause import paused
from ...util.units import KNEE, budget_share, format_bytes, format_distinct, parse_budget
from ..capture.captured import BUFFER, INPUT, PARAMETER, Captured
from ..capture.optimizer_moment import check_optimizer
from .network import PLANNED_AGAIN, UNCOUNTED, TracedNetwork
from .request import Request

logger = logging.getLogger("memonger.torch")
#: Linear programs that may prove that a network is not worth a search.
_ROUNDS = 3
#: Extra time from which on another form of the step may be worth reading it and a search.
_WORTH_ANOTHER_FORM = 0.03
#: By how much of a step a plan of another form must be faster.
_CLEARLY = 0.01
#: What a refusal says of the least plan under Inductor, whose code has not run.
_PREDICTED = ". That total is predicted: the code of so deep a plan may take a fifth more"
#: Ops of a step that is searched among moves only from a plan without them.
_LARGE_OPS = 8000


def make_plan(captured: Captured, request: Request, pool_bytes: int = 0,
              original: Optional[Plan] = None) -> Plan:
    """The plan of one graph.

    ``pool_bytes``: the most for what the step allocates, below what the budget leaves; 0: none.
    ``original``: the unplanned step, where the graph is that network with other operators.
    """
    return plan_of(TracedNetwork(captured, request, pool_bytes, original))


def best_plan(networks: Sequence[TracedNetwork]) -> Plan:
    """The best of the plans for a step: with moves to the host, if it comes with any, and without.

    A value that may go there is read in backward from one run of its maker, so that where little is
    to be gained a step without moves may be planned better. Then a search among moves begins there,
    in large steps alone: from nothing it ends before it gets so far.
    """
    request = networks[0].request
    given = request.plan
    if given is not None:
        networks = _those_of(given, networks)[:1] or [
            networks[0] if given.schedule.variants else networks[-1]]
    elif not networks[0].captured.moves:  # none of its values is worth one
        networks = networks[-1:]
    made: List[Plan] = []
    refused: List[InfeasibleBudget] = []

    def attempt(network: TracedNetwork, **changes: Any) -> None:
        try:
            made.append(plan_of(replace(network, request=replace(request, **changes))))
        except InfeasibleBudget as error:
            refused.append(error)

    small = len(networks[0].graph.ops) <= _LARGE_OPS
    for network in networks if small else networks[-1:]:
        if made and _is_dearer(network, made[-1]):
            continue
        attempt(network, **({} if network.captured.moves else {"host_budget_bytes": None}))
        if made and request.budget is not None and made[-1].overhead <= 0:
            return made[-1]
    best = min(made, key=partial(_price, request), default=None)
    if len(networks) > 1 and (not small if best is None else best.graph is not networks[0].graph):
        attempt(networks[0], given=best or request.given)
    if not made:
        raise min(refused, key=lambda error: error.minimum_bytes)
    return min(made, key=partial(_price, request))


def _is_dearer(network: TracedNetwork, plan: Plan) -> bool:
    """Whether linear programs prove that no plan of a network costs less time than this one."""
    request, graph = network.request, network.graph
    if request.budget is None or request.budget == KNEE or request.in_flight > 1 \
            or network.captured.moves:
        return False
    allowed = network.pool_within(parse_budget(request.budget, network.unplanned.total_bytes))
    bound = overhead_bound(graph, allowed.pool_bytes, rounds=_ROUNDS)
    return bound.extra_s >= plan.overhead * graph.time_s


def first_plan(forms: Iterable[Sequence[TracedNetwork]]) -> Tuple[TracedNetwork, Plan]:
    """The plan of the first form of a step that has one, with the network that it is for.

    The form that a given plan is for comes before others, or at other sizes the one most like it. A
    plan that costs much is put beside the next form's, which is taken where it clearly costs less:
    estimates tell forms apart no better. Where the least memory is asked for, the best plan of all
    forms.
    """
    made: List[Tuple[TracedNetwork, Plan]] = []
    refused: List[InfeasibleBudget] = []
    mismatch: Optional[PlanMismatch] = None
    for networks in _given_first(forms):
        request = networks[0].request
        try:
            plan = best_plan(networks)
        except InfeasibleBudget as error:
            refused.append(error)
            continue
        except PlanMismatch as error:  # at other sizes only the decisions tell forms apart
            mismatch = mismatch or error
            continue
        made.append((_those_of(plan, networks)[0], plan))
        if request.plan is not None or request.budget is not None and (
                len(made) > 1 or plan.overhead < _WORTH_ANOTHER_FORM):
            break
    if not made:
        raise min(refused, key=lambda error: error.minimum_bytes) if refused or mismatch is None \
            else mismatch
    first, *others = made
    if first[0].request.budget is None:
        return min(made, key=lambda item: item[1].total_bytes)
    return min((item for item in others if _costs_less(item[1], first[1])), default=first,
               key=lambda item: item[1].overhead)


def _costs_less(plan: Plan, other: Plan) -> bool:
    """Whether a plan of another form takes clearly less time, by itself and beside its own step."""
    least_s = _CLEARLY * other.graph.time_s
    (mine_s, base_s), (other_s, other_base_s) = (
        (one.schedule.time_s(one.graph), one.graph.time_s) for one in (plan, other))
    return other_s - mine_s > least_s and (other_s - other_base_s) - (mine_s - base_s) > least_s


def _given_first(forms: Iterable[Sequence[TracedNetwork]]) -> Iterator[Sequence[TracedNetwork]]:
    others = []
    for networks in forms:
        given = networks[0].request.plan
        if given is None or _those_of(given, networks):
            yield networks
        else:
            kinds, wanted = (Counter(op.kind for op in graph.ops)
                             for graph in (networks[-1].graph, given.graph))
            others.append((sum(((kinds - wanted) + (wanted - kinds)).values()), networks))
    yield from (networks for _, networks in sorted(others, key=operator.itemgetter(0)))


def _those_of(plan: Plan, networks: Sequence[TracedNetwork]) -> List[TracedNetwork]:
    return [step for step in networks if step.graph.fingerprint == plan.graph.fingerprint]


def _price(request: Request, plan: Plan) -> float:
    """What a request minimizes."""
    return plan.total_bytes if request.budget is None else plan.overhead


@paused()
def plan_of(network: TracedNetwork) -> Plan:
    """The plan of a network, for its request."""
    started_s, request = time.perf_counter(), network.request
    try:
        plan = _planned(network, request, started_s) if request.plan is None or \
            request.unplanned else _followed(network, request.plan, started_s)
    except InfeasibleBudget as error:
        least = error.best_plan
        if request.mode == "inductor" and isinstance(least, Plan) and \
                least.total_bytes == error.minimum_bytes < network.unplanned.total_bytes:
            error.args = (str(error) + _PREDICTED,)
        raise
    return _unproven(plan, network) if network.most_bytes else plan


def _unproven(plan: Plan, network: TracedNetwork) -> Plan:
    """The plan without what was proven for less than its budget leaves."""
    status = Status.FEASIBLE if plan.status is Status.OPTIMAL else plan.status
    return plan.changed(status=status, minimum_total_bytes=None).with_bound(
        free_bound(network.graph, _for_planning(network.captured, network.request).variants))


def log_plan(plan: Plan, again: bool = False) -> None:
    """One line of the log about a plan that is to run.

    ``again``: code by a plan before was tried, and took more than the budget.
    """
    logger.info("%s for %s: total %s, %+.1f %% time, made in %.1f s",
                "planned again, as the code took more than the plan said," if again else "plan",
                "the least memory" if plan.budget_bytes is None else
                "a budget of %s" % format_bytes(plan.budget_bytes),
                format_bytes(plan.total_bytes), 100 * plan.overhead, plan.planning_s)


def knee_of(captured: Captured, request: Request) -> Request:
    """A request for the knee as one for its share; any other, and one that plans nothing, as is."""
    if request.budget != KNEE or request.unplanned:
        return request
    return at_knee(request, TracedNetwork(captured, request).unplanned.total_bytes,
                   lambda asked: make_plan(captured, asked))


def _planned(network: TracedNetwork, request: Request, started_s: float) -> Plan:
    wanted = _for_planning(network.captured, request)
    budget_bytes = None if request.budget is None or request.budget == KNEE else parse_budget(
        request.budget, network.unplanned.total_bytes)
    fits = False
    if budget_bytes is not None:
        allowed = network.pool_within(budget_bytes)
        outside_bytes = sum(network.outside_bytes.values())
        check_optimizer(network.captured, allowed.pool_bytes if request.in_flight <= 1 else
                        budget_bytes - outside_bytes, outside_bytes)
        fits = network.as_written_bytes <= allowed.pool_bytes
    # What the mode does by itself.
    unplanned = _plan_of(network, wanted, network.as_written, started_s, budget_bytes, "none",
                         Status.FEASIBLE if network.original or network.captured.plain_pool_bytes
                         else Status.NOT_NEEDED)
    if request.unplanned or fits and not request.recompute:
        return unplanned
    if network.captured.checkpoints and wanted.given is None:
        wanted = replace(wanted, given=unplanned)
    if budget_bytes is None or request.in_flight <= 1 or network.most_bytes:
        return plan_network(network, wanted, started_s)
    return _in_flight(network, wanted, started_s, budget_bytes)


def _in_flight(network: TracedNetwork, wanted: Request, started_s: float,
               budget_bytes: int) -> Plan:
    """A plan for several microbatches in flight, searched twice.

    What is there beside the values that microbatches hold, and so what one may take, is known only
    when there is a plan. What is proven holds for what one may take, and not for the budget.
    """
    made: List[Plan] = []
    wanted = replace(wanted, time_limit=wanted.time_limit / 2)
    for _ in range(2):
        try:
            plan = plan_network(network, wanted, started_s)
        except InfeasibleBudget as error:
            if not isinstance(error.best_plan, Plan):
                raise
            plan = error.best_plan
        made.append(_unproven(plan.changed(budget_bytes=budget_bytes), network))
        network = replace(network, most_bytes=network.pool_like(plan.schedule, budget_bytes))
    fit = [plan for plan in made if plan.total_bytes <= budget_bytes]
    if fit:
        return min(fit, key=lambda plan: plan.overhead)
    least = min(made, key=lambda plan: plan.total_bytes)
    raise InfeasibleBudget(
        "no plan was found that takes %s with %d microbatches in flight; the smallest takes %s"
        % (format_bytes(budget_bytes), wanted.in_flight, format_bytes(least.total_bytes)),
        budget_bytes, least.total_bytes, best_plan=least)


def _followed(network: TracedNetwork, given: Plan, started_s: float) -> Plan:
    """A plan that was given, where the graph has other sizes by the same decisions.

    Planned again for its budget where these decisions take more at these sizes, with what operators
    were measured to allocate while they run, or as their code was tried.
    Raises PlanMismatch where the plan is for another network.
    """
    graph = network.graph
    again = _asked_again(network, given)
    if network.most_bytes:  # its code was tried
        return plan_network(network, again, started_s)
    if given.graph.fingerprint == graph.fingerprint and (
            not given.schedule.variants or _names(given.graph) == _names(graph)):
        return given
    schedule = None if given.schedule.variants else _same_decisions(given, graph)
    if given.schedule.variants and _holds_the_same(given.graph, graph):
        # Where copies are issued depends on sizes.
        return plan_network(network, replace(again, given=None, notes=()), started_s)
    if schedule is None:
        raise PlanMismatch(
            "the plan is for another network: it was made with another module, other kinds of "
            "inputs or another version of PyTorch; plan again with memonger.torch.plan",
            given.graph.fingerprint, graph.fingerprint)
    same_sizes = _held(given.graph, INPUT) == _held(graph, INPUT)
    asked, budget_bytes = given.budget_bytes, given.budget_bytes
    of_step = given.options.get("budget") or 0
    if same_sizes and (budget_share(of_step) or 0) >= 1:  # the unplanned step, too, takes more now
        asked, budget_bytes = of_step, parse_budget(of_step, network.unplanned.total_bytes)
    plan = _plan_of(network, replace(again, budget=asked, notes=()), schedule, started_s,
                    budget_bytes, given.method, Status.FEASIBLE)
    if budget_bytes is None or plan.total_bytes <= budget_bytes:
        return plan
    try:
        return plan_network(network, replace(again, budget=asked), started_s)
    except InfeasibleBudget:
        if UNCOUNTED not in given.notes or not same_sizes:
            raise
    warnings.warn(
        "the plan's step takes %s with what operators allocate while they run, which the plan does "
        "not count: above its budget of %s, which no plan keeps. Give memonger.torch.compile a "
        "budget in place of the plan" % format_distinct(plan.total_bytes, budget_bytes),
        stacklevel=2)
    return plan


def _asked_again(network: TracedNetwork, given: Plan) -> Request:
    """What the plan was asked for, asked of this network, for its budget in bytes."""
    asked = given.options
    named = ("keep", "recompute", "max_clones") if _names(given.graph) == _names(network.graph) \
        else ("max_clones",)
    return _for_planning(network.captured, replace(
        network.request, budget=given.budget_bytes, given=given, notes=(PLANNED_AGAIN,),
        **{name: asked[name] for name in named if name in asked}))


def _names(graph: Graph) -> List[str]:
    return [op.name for op in graph.ops]


def _same_decisions(plan: Plan, other: Graph) -> Optional[Schedule]:
    """The plan's schedule in the graph of the same network at other sizes; None for another one."""
    graph = plan.graph
    if not _holds_the_same(graph, other):
        return None
    # A few operators depend on sizes, such as products with one row.
    if _held(graph, INPUT) == _held(other, INPUT) and \
            {op.kind for op in graph.ops} != {op.kind for op in other.ops}:
        return None
    if [op.kind for op in graph.ops] == [op.kind for op in other.ops]:
        # Op by op: where sizes are symbols, PyTorch numbers names otherwise.
        return expand_in_part(other, decisions_of(graph, plan.schedule))
    return carried_over(graph, plan.schedule, other)


def _holds_the_same(graph: Graph, other: Graph) -> bool:
    return _held(graph, PARAMETER, BUFFER) == _held(other, PARAMETER, BUFFER)


def _held(graph: Graph, *categories: str) -> List[Tuple[str, Tuple[int, ...]]]:
    return [(t.category, t.shape) for t in graph.tensors if t.category in categories]


def _plan_of(network: TracedNetwork, wanted: Request, schedule: Schedule, started_s: float,
             budget_bytes: Optional[int], method: str, status: Status) -> Plan:
    """A schedule as a plan of the network."""
    pool_bytes = network.as_written_bytes if schedule is network.as_written else \
        network.pool_bytes(schedule)
    return network.as_plan(Plan(
        Terms(budget_bytes, record_of(network, wanted), storage="live"), network.graph, schedule,
        Footprints(Footprint(pool_bytes, network.outside_of(schedule)), network.unplanned),
        Outcome(status, method, notes=wanted.notes, planning_s=time.perf_counter() - started_s)))


def _for_planning(captured: Captured, request: Request) -> Request:
    """The request in terms of the graph, whose only variants are moves to the host."""
    # PyTorch's own split has one clone of an op.
    return replace(request, variants="exact" if captured.moves else "none",
                   max_clones=1 if captured.sized_by_values else request.max_clones)
