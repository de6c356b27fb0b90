"""No variants are tried where bytes that no search foresees decide: on a GPU, or when bound."""
from __future__ import annotations

import re
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from footprints import planned_as
from report.graphs import plan_of, resnet

from memonger.mx.calls import planning
from memonger.mx.calls.requests import PlanRequest
from memonger.plan.plan import Plan, Status
from memonger.solve.frontier import sweep_budgets
from memonger.util.errors import InfeasibleBudget, NoPlanInTime

REQUEST = PlanRequest("60%", variants="exact")
LEAST = replace(REQUEST, budget=None)


@dataclass(frozen=True)
class Network:
    """What of a session decides which searches are made."""

    device: Any = None
    tunes: bool = False
    has_arena: bool = True
    storage: str = "arena"
    unplanned_total_bytes: int = 2 ** 20


@pytest.fixture
def search(monkeypatch):
    """Calls ``plan_session`` with canned answers by variants; also returns what was tried."""
    plan = plan_of(resnet((1,), 4, 16), {})
    tried = []

    def run(answers, request=REQUEST, spent_s=0.0, device=None):
        tried.clear()

        def answer(session, asked, started_s, account):
            tried.append(asked.variants)
            account.spend(spent_s)
            found = answers[asked.variants]
            if isinstance(found, BaseException):
                raise found
            return found

        monkeypatch.setattr(planning, "confirmed_plan", answer)
        monkeypatch.setattr(planning, "offering", lambda *_: SimpleNamespace(graph=plan.graph))
        return planning.plan_session(Network(device), request), tried

    return run


def refusal(bound_bytes):
    return InfeasibleBudget("no plan fits", 100, 150, bound_bytes=bound_bytes)


def plan_taking(extra_bytes, **fields):
    """A plan of a small network that takes so much more than the unplanned network."""
    plan = plan_of(resnet((1,), 4, 16), {})
    return replace(planned_as(plan, pool_bytes=plan.baseline_pool_bytes + extra_bytes), **fields)


def test_variants_that_take_more_than_none_are_left_out(search):
    plain = plan_taking(0, bound=0.0, status=Status.OPTIMAL)
    found, tried = search({"exact": plan_taking(10, bound=-0.5), "none": plain}, LEAST)
    assert tried == ["exact", "none"] and found.pool_bytes == plain.pool_bytes
    # What is proven without variants holds for no plan with them.
    assert found.bound <= -0.5 and found.status is Status.FEASIBLE
    assert search({"exact": plan_taking(-10)}, LEAST)[1] == ["exact"]


def test_a_looser_budget_gets_a_tighter_ones_plan_but_not_its_proof():
    tight = plan_of(resnet((1,), 4, 16), {}, bound=0.0, status=Status.OPTIMAL)
    loose = replace(plan_of(tight.graph), bound=-0.5)
    assert loose.overhead > tight.overhead
    first, second = sweep_budgets([90, 50], 100, lambda budget: loose if budget > 50 else tight)
    assert second is tight and first.schedule == tight.schedule and first.budget_bytes == 90
    assert (first.bound, first.status) == (-0.5, Status.FEASIBLE)


def test_a_plan_within_the_budget_ends_the_searches(search):
    assert search({"exact": plan_taking(10)})[1] == ["exact"]
    assert search({"exact": plan_taking(10)}, device=True)[1] == ["exact"]


@pytest.mark.parametrize("bound_bytes, device", [(0, None), (90, True)])
def test_a_refusal_stands_only_where_no_variants_are_refused_too(search, bound_bytes, device):
    """Where an executor took more than was predicted, and on a GPU."""
    plain = plan_taking(0)
    found, tried = search({"exact": refusal(bound_bytes), "none": plain}, device=device)
    assert tried == ["exact", "none"] and found.schedule == plain.schedule
    with pytest.raises(InfeasibleBudget, match="Unplanned, the network takes 1.00 MiB; a smaller "
                       "batch takes less$"):
        search({"exact": refusal(bound_bytes), "none": refusal(90)}, device=device)


def test_a_search_that_tried_fewer_variants_itself_is_not_repeated(search):
    with pytest.raises(InfeasibleBudget):
        search({"exact": refusal(90)})


def test_a_refusal_states_what_is_proven_for_all_variants(search):
    least = plan_of(resnet((1,), 4, 16), budget_bytes=100, minimum_total_bytes=95)
    with pytest.raises(InfeasibleBudget) as caught:
        search({"exact": refusal(90),
                "none": InfeasibleBudget("", 100, 140, best_plan=least, bound_bytes=95)},
               device=True)
    assert caught.value.bound_bytes == 90 and caught.value.best_plan.minimum_total_bytes == 90
    assert re.match("no plan fits 100 B; .*, and none takes less than 90 B", str(caught.value))


@pytest.mark.parametrize("device", [None, True])
def test_what_is_proven_impossible_is_not_searched_again(search, device):
    with pytest.raises(InfeasibleBudget):
        search({"exact": refusal(120)}, device=device)


def test_the_searches_of_a_call_share_its_time_limit(search):
    answers = {"exact": plan_taking(10), "none": plan_taking(0)}
    assert search(answers, LEAST, spent_s=10.0)[1] == ["exact", "none"]
    assert search(answers, LEAST, spent_s=12.5)[1] == ["exact"]


@pytest.mark.parametrize("end", [KeyboardInterrupt(), NoPlanInTime("interrupted")])
def test_ctrl_c_keeps_the_plan_that_is_there(search, end):
    assert isinstance(search({"exact": plan_taking(10), "none": end}, LEAST)[0], Plan)
    interrupted = plan_taking(10, status=Status.INTERRUPTED)
    assert search({"exact": interrupted}, LEAST)[1] == ["exact"]
    with pytest.raises(type(end)):
        search({"exact": end})
