"""A plan for a network that was read: a table of searches.

:data:`ROWS` is what a call does. The search that was asked for comes first. On a GPU bytes outside
the pool may decide, so searches of other kinds follow: an arena or variants may take more there
than they save. Within each search the method has a table of its own
(:mod:`memonger.solve.auto`).
"""
from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Optional, Tuple

from ..plans.plan import Plan, Status
from ..report.progress import part_of
from ..solve.effort import ALL_SEARCHES, LEAST_SEARCH, Effort, failure_notes
from ..solve.mip.bounds import free_bound
from ..solve.result import refusal
from ..solve.row import Row
from ..solve.search.local import first_search_s
from ..util.errors import InfeasibleBudget, NoPlanInTime
from ..util.units import KNEE, format_bytes, format_distinct
from .confirmed_plan import confirmed_plan
from .network import Network
from .requests import PlanRequest
from .search_options import WITHOUT_VARIANTS, offered, pinned
from .sweeping import at_knee

#: What a call takes at most, as a multiple of its time limit.
CALL = 2.0
#: Counted seconds of reading and confirming, for each op.
S_PER_OP = 0.9e-3
#: The share of the usual first search that still finds plans.
LEAST_FIRST = 0.6


@dataclass
class Call:
    """One call: what is asked, the best plan so far, and the work of all its searches."""

    network: Network
    request: PlanRequest
    started_s: float
    account: Effort
    best: Optional[Plan] = None
    #: The network of the search that found it, and so the storage that the plan is for.
    best_network: Optional[Network] = None
    #: The plan of the search that was asked for.
    asked: Optional[Plan] = None
    #: The refusal with the smallest total, and the bound of the search that was asked for.
    refused: Optional[InfeasibleBudget] = None
    bound_bytes: int = 0
    searches: int = 0
    interrupted: bool = False

    @cached_property
    def in_buffers(self) -> Optional[Network]:
        """The network in whole buffers, where those may take less."""
        return self.network.in_whole_buffers()

    @property
    def has_variants(self) -> bool:
        """Whether the plans that are asked for may have variants."""
        return self.request.variants != "none" and self.request.method not in WITHOUT_VARIANTS

    @property
    def open(self) -> bool:
        """Whether another search may find a better plan, and there is work left for it."""
        if self.interrupted:
            return False
        if self.best is None:
            assert self.refused is not None
            # A search that proves a bound has tried plans with fewer variants, but not bound them.
            return self.refused.bound_bytes <= self.refused.budget_bytes and (
                not self.network.is_foreseen or not self.refused.bound_bytes)
        return self.best.status is not Status.INTERRUPTED and self.request.budget is None \
            and self.account.left_s >= LEAST_SEARCH * self.request.time_limit

    def search(self, network: Network, request: PlanRequest) -> None:
        """Search for a plan and keep the better one; an interruption ends all searches."""
        self.searches += 1
        if self.searches > 1:
            most = 1 + (self.in_buffers is not None) + self.has_variants
            request = replace(request, progress=part_of(
                request.progress, "search %d of at most %d" % (self.searches, most),
                self.started_s))
        try:
            plan = confirmed_plan(network, request, self.started_s, self.account)
        except InfeasibleBudget as error:
            if self.refused is None or error.minimum_bytes < self.refused.minimum_bytes:
                self.refused = error
            return
        except (KeyboardInterrupt, NoPlanInTime):
            if self.best is None:
                raise
            self.interrupted = True
            return
        if self.best is None or _rank(plan, request) < _rank(self.best, request):
            self.best, self.best_network = plan, network


def _rank(plan: Plan, request: PlanRequest) -> Tuple[float, float]:
    """Less is better: time within a budget, else bytes."""
    if request.budget is not None:
        return plan.overhead, plan.total_bytes
    return plan.total_bytes, plan.overhead


# ---------------------------------------------------------------------- steps
def as_asked(call: Call) -> None:
    call.search(call.network, call.request)
    call.asked = call.best
    call.bound_bytes = call.refused.bound_bytes if call.refused else 0


def whole_buffers(call: Call) -> None:
    assert call.in_buffers is not None
    call.search(call.in_buffers, call.request)


def no_variants(call: Call) -> None:
    call.search(call.in_buffers or call.network, replace(call.request, variants="none"))


#: What a call does, in order.
ROWS: Tuple[Row[Call], ...] = (
    Row("as asked", "the plan", lambda c: True, as_asked, price="the time limit"),
    Row("whole buffers", "MXNet tunes convolutions after it allocates an arena, before buffers",
        lambda c: c.in_buffers is not None and c.open and (
            c.best is None or c.best.fixed_bytes.get("autotuning", 0) > 0), whole_buffers,
        price="what all searches may take beyond it, three tenths of it"),
    Row("no variants", "some need random states, and pages round small allocations up",
        lambda c: c.has_variants and c.open and (
            c.best is None or c.best.total_bytes > c.best.baseline_total_bytes), no_variants,
        price="what is left of these"),
)


def plan_network(network: Network, request: PlanRequest,
                 started_s: Optional[float] = None) -> Plan:
    """The plan that a request asks for, confirmed by the frontend that read the network.

    Raises InfeasibleBudget if no plan fits; it carries the smallest total found.
    Raises NoPlanInTime if the search was interrupted before it found a plan.
    """
    started_s = time.perf_counter() if started_s is None else started_s
    if request.budget == KNEE:
        request = at_knee(request, network.unplanned.total_bytes,
                          lambda asked: plan_network(network, asked))
    call = Call(network, request, started_s, Effort(search_s(network, request.time_limit)))
    for row in ROWS:
        if row.name not in request.without and row.when(call):
            row.run(call)
    if call.best is None:
        raise _refusal(call)
    made = call.best if call.best is call.asked else _with_proof(call, call.best)
    return made.changed(notes=made.notes + request.notes)


def search_s(network: Network, time_limit: float) -> float:
    """Counted seconds for all searches of a call, which takes twice the time limit at most.

    In large networks reading and confirming leave less for searches, but a search never gets less
    than it needs to find plans. Where nothing is left the limit cannot be kept, and the search gets
    all that it needs.
    """
    left_s = CALL * time_limit - len(network.graph.ops) * S_PER_OP
    share = LEAST_FIRST if left_s > 0 else 1.0
    return min(ALL_SEARCHES * time_limit, max(left_s, share * first_search_s(network.graph)))


def _refusal(call: Call) -> InfeasibleBudget:
    """The refusal with the smallest total, with the bound of the search that was asked for."""
    refused = call.refused
    assert refused is not None
    if refused.bound_bytes > call.bound_bytes and isinstance(refused.best_plan, Plan):
        refused = refusal(refused.best_plan.changed(minimum_total_bytes=call.bound_bytes),
                          failure_notes(call.account.failures))
    whole_bytes = call.network.unplanned.total_bytes
    # Of code without shared buffers a trial tells what it takes unplanned.
    if call.network.graph.shares_buffers \
            and refused.budget_bytes < whole_bytes < refused.minimum_bytes \
            and not pinned(call.network, call.request)[1]:
        return InfeasibleBudget(
            "no plan was found that takes less than the unplanned network, which takes %s, above "
            "the budget of %s; ask for as much as that takes, or for a smaller batch"
            % format_distinct(whole_bytes, refused.budget_bytes), refused.budget_bytes,
            whole_bytes, best_plan=refused.best_plan,
            bound_bytes=min(refused.bound_bytes, whole_bytes))
    refused.args = ("%s. %s; a smaller batch takes less" % (
        refused, "Unplanned, the network takes " + format_bytes(whole_bytes)
        if refused.minimum_bytes < whole_bytes else "That is the network without a plan"),)
    return refused


def _with_proof(call: Call, plan: Plan) -> Plan:
    """A plan of another search, with the bounds of the one that was asked for.

    Bounds hold for one kind of storage.
    """
    asked = call.asked if call.best_network is call.network else None
    if asked is None:
        graph = offered(call.network, call.request).graph
        return plan.changed(minimum_total_bytes=None).with_bound(
            free_bound(graph, call.request.variants))
    least_bytes = asked.minimum_total_bytes
    if least_bytes is not None:
        least_bytes = min(least_bytes, plan.total_bytes)
    return plan.changed(minimum_total_bytes=least_bytes).with_bound(asked.bound)
