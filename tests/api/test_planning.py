"""Fewer variants are tried where more lead a search to a worse plan, or to none."""
from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from report.graphs import plan_of, resnet

from memonger.mx.calls import planning
from memonger.mx.calls.requests import PlanRequest
from memonger.plan.plan import Plan, Status
from memonger.solve.frontier import sweep_budgets
from memonger.util.errors import InfeasibleBudget, NoPlanInTime

REQUEST = PlanRequest("60%", variants="all")


@pytest.fixture
def search(monkeypatch):
    """Calls ``plan_session`` with canned answers by variants; also returns what was tried."""
    plan = plan_of(resnet((1,), 4, 16), {})
    tried = []

    def run(answers, request=REQUEST, spent_s=0.0):
        tried.clear()

        def answer(session, way, started_s, account):
            tried.append(way.variants)
            account.spend(spent_s)
            found = answers[way.variants]
            if isinstance(found, BaseException):
                raise found
            if isinstance(found, Plan):
                return found
            overhead, bound, *status = found
            again = next(i for i, op in enumerate(plan.graph.ops) if op.recomputable)
            made = plan_of(plan.graph, {again: {}} if overhead else {}, bound=bound)
            return replace(made, status=status[0]) if status else made

        monkeypatch.setattr(planning, "confirmed_plan", answer)
        monkeypatch.setattr(planning, "offering", lambda *_: SimpleNamespace(graph=plan.graph))
        session = SimpleNamespace(device=None, unplanned_total_bytes=2 ** 20)
        return planning.plan_session(session, request), tried

    return run


def refusal(bound_bytes):
    return InfeasibleBudget("no plan fits", 100, 150, bound_bytes=bound_bytes)


def test_the_cheaper_of_two_sets_of_variants_is_taken(search):
    found, tried = search({"all": (1, -0.5), "exact": (0, -0.5)})
    assert tried == ["all", "exact"] and found.overhead == 0
    found, tried = search({"all": (0, -0.5), "exact": (1, -0.5)})
    assert tried == ["all", "exact"] and found.overhead == 0


def test_what_fewer_variants_prove_is_not_said_of_all(search):
    found, _ = search({"all": (1, -0.5), "exact": (0, 0.0, Status.OPTIMAL)})
    assert (found.overhead, found.bound, found.status) == (0, -0.5, Status.FEASIBLE)


def test_a_looser_budget_gets_a_tighter_ones_plan_but_not_its_proof():
    tight = plan_of(resnet((1,), 4, 16), {}, bound=0.0, status=Status.OPTIMAL)
    loose = replace(plan_of(tight.graph), bound=-0.5)
    assert loose.overhead > tight.overhead
    first, second = sweep_budgets([90, 50], 100, lambda budget: loose if budget > 50 else tight)
    assert second is tight and first.schedule == tight.schedule and first.budget_bytes == 90
    assert (first.bound, first.status) == (-0.5, Status.FEASIBLE)


def test_a_plan_near_its_bound_ends_the_search(search):
    assert search({"all": (0, 0.0)})[1] == ["all"]
    assert search({"exact": (1, -0.5)}, replace(REQUEST, variants="exact"))[1] == ["exact"]


def test_fewer_variants_that_cannot_cost_less_are_not_searched(search):
    """A plan that costs nothing in three quarters of the pool; one in all of it."""
    unplanned = plan_of(resnet((1,), 4, 16), {})
    fixed_bytes = sum(unplanned.fixed_bytes.values())
    tight = replace(unplanned, bound=-0.5,
                    budget_bytes=fixed_bytes + unplanned.pool_bytes * 3 // 4)
    loose = replace(tight, budget_bytes=unplanned.total_bytes)
    assert search({"all": tight})[1] == ["all"]
    assert search({"all": loose, "exact": (0, -0.5)})[1] == ["all", "exact"]


def test_a_refusal_stands_only_where_fewer_variants_refuse_too(search):
    found, tried = search({"all": refusal(90), "exact": refusal(90), "none": (0, 0.0)})
    assert tried == ["all", "exact", "none"] and found.overhead == 0
    with pytest.raises(InfeasibleBudget, match="As it is the network takes 1.00 MiB$"):
        search({"all": refusal(90), "exact": refusal(90), "none": refusal(90)})


def test_a_refusal_states_what_is_proven_for_all_variants(search):
    least = plan_of(resnet((1,), 4, 16), budget_bytes=100, minimum_total_bytes=95)
    with pytest.raises(InfeasibleBudget) as caught:
        search({"all": refusal(90), "none": refusal(90),
                "exact": InfeasibleBudget("", 100, 140, best_plan=least, bound_bytes=95)})
    assert caught.value.bound_bytes == 90 and caught.value.best_plan.minimum_total_bytes == 90
    assert re.match("no plan fits 100 B; .*, and none takes less than 90 B", str(caught.value))


def test_what_is_proven_impossible_is_not_searched_again(search):
    with pytest.raises(InfeasibleBudget):
        search({"all": refusal(120)})


def test_the_searches_of_a_call_share_its_time_limit(search):
    answers = {"all": (1, -0.5), "exact": (0, -0.5)}
    assert search(answers, spent_s=10.0)[1] == ["all", "exact"]
    assert search(answers, spent_s=12.5)[1] == ["all"]


@pytest.mark.parametrize("end", [KeyboardInterrupt(), NoPlanInTime("interrupted")])
def test_ctrl_c_keeps_the_plan_that_is_there(search, end):
    assert search({"all": (1, -0.5), "exact": end})[0].overhead > 0
    assert search({"all": (1, -0.5, Status.INTERRUPTED)})[1] == ["all"]
    with pytest.raises(type(end)):
        search({"all": end})
