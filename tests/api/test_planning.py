"""No variants are tried where bytes that no search foresees decide: on a GPU, or when bound."""
from __future__ import annotations

import re
from dataclasses import replace

import pytest
from planning_net import StatedNetwork
from report.graphs import plan_of, resnet

from memonger.planning.requests import PlanRequest
from memonger.planning.searches import plan_network
from memonger.plans.footprint import Footprint
from memonger.plans.plan import Plan, Status
from memonger.solve import register
from memonger.solve.frontier import sweep_budgets
from memonger.util.errors import InfeasibleBudget, NoPlanInTime

GRAPH = resnet((1,), 4, 16)
PLAN = plan_of(GRAPH, bounded=True)
REQUEST = PlanRequest(PLAN.pool_bytes, variants="exact")
LEAST = replace(REQUEST, budget=None)
UNPLANNED = StatedNetwork(GRAPH).unplanned.pool_bytes


@pytest.fixture
def search():
    """Plans with a method that answers by the variants asked for; also returns what was tried."""
    tried = []

    def run(answers, request=REQUEST, spent_s=0.0, on_gpu=False):
        tried.clear()

        def answer(graph, budget_bytes, options):
            tried.append(options.variants)
            options.account.spend(spent_s)
            if isinstance(answers[options.variants], BaseException):
                raise answers[options.variants]
            return answers[options.variants][0]

        register("stated", answer)
        network = StatedNetwork(GRAPH, lambda plan: answers[tried[-1]][1], not on_gpu)
        return plan_network(network, replace(request, method="stated")), tried

    return run


def refusal(bound_bytes, budget_bytes=100):
    return InfeasibleBudget("no plan fits", budget_bytes, 150, bound_bytes=bound_bytes)


def taking(total_bytes, **fields):
    """A plan, and by how much its bound form takes more than predicted."""
    return PLAN.changed(**fields), total_bytes - PLAN.pool_bytes


def test_variants_that_take_more_than_none_are_left_out(search):
    plain = taking(UNPLANNED, bound=0.0, status=Status.OPTIMAL)
    plan, tried = search({"exact": taking(UNPLANNED + 10, bound=-0.5), "none": plain}, LEAST)
    assert tried == ["exact", "none"] and plan.pool_bytes == UNPLANNED
    # What is proven without variants holds for no plan with them.
    assert plan.bound <= -0.5 and plan.status is Status.FEASIBLE
    assert search({"exact": taking(UNPLANNED - 10)}, LEAST)[1] == ["exact"]


def test_a_looser_budget_gets_a_tighter_ones_plan_but_not_its_proof():
    tight = plan_of(resnet((1,), 4, 16), {}, bound=0.0, status=Status.OPTIMAL)
    loose = plan_of(tight.graph).changed(bound=-0.5)
    assert loose.overhead > tight.overhead
    first, second = sweep_budgets([90, 50], 100, lambda budget: loose if budget > 50 else tight)
    assert second is tight and first.schedule == tight.schedule and first.budget_bytes == 90
    assert (first.bound, first.status) == (-0.5, Status.FEASIBLE)


def test_budgets_that_a_refusal_proves_too_small_are_not_searched():
    tried = []

    def plan_at(budget):
        tried.append(budget)
        if budget < 60:
            raise InfeasibleBudget("too small", budget, 60, bound_bytes=50)
        return PLAN.changed(budget_bytes=budget)

    assert [plan.budget_bytes for plan in sweep_budgets([80, 55, 45, 20], 100, plan_at)] == [80]
    assert tried == [20, 55, 80]


def test_a_plan_within_the_budget_ends_the_searches(search):
    assert search({"exact": taking(PLAN.pool_bytes)})[1] == ["exact"]
    assert search({"exact": taking(PLAN.pool_bytes)}, on_gpu=True)[1] == ["exact"]


@pytest.mark.parametrize("bound_bytes, on_gpu", [(0, False), (90, True)])
def test_a_refusal_stands_only_where_no_variants_are_refused_too(search, bound_bytes, on_gpu):
    """Where an executor took more than was predicted, and on a GPU."""
    plain = taking(PLAN.pool_bytes)
    plan, tried = search({"exact": refusal(bound_bytes), "none": plain}, on_gpu=on_gpu)
    assert tried == ["exact", "none"] and plan.schedule == PLAN.schedule
    with pytest.raises(InfeasibleBudget, match="Unplanned, the network takes [0-9.]+ KiB; a "
                       "smaller batch takes less$"):
        search({"exact": refusal(bound_bytes), "none": refusal(90)}, on_gpu=on_gpu)


def test_a_search_that_tried_fewer_variants_itself_is_not_repeated(search):
    with pytest.raises(InfeasibleBudget):
        search({"exact": refusal(90)})


def test_a_refusal_states_what_is_proven_for_all_variants(search):
    least = plan_of(resnet((1,), 4, 16), budget_bytes=100, minimum_total_bytes=95).changed(
        planned=Footprint(140, {}))
    with pytest.raises(InfeasibleBudget) as caught:
        search({"exact": refusal(90),
                "none": InfeasibleBudget("", 100, 140, best_plan=least, bound_bytes=95)},
               on_gpu=True)
    assert caught.value.bound_bytes == 90 and caught.value.best_plan.minimum_total_bytes == 90
    assert re.match("no plan fits 100 B; .*, and none takes less than 90 B", str(caught.value))


@pytest.mark.parametrize("on_gpu", [False, True])
def test_what_is_proven_impossible_is_not_searched_again(search, on_gpu):
    with pytest.raises(InfeasibleBudget):
        search({"exact": refusal(120)}, on_gpu=on_gpu)


def test_the_searches_of_a_call_share_its_time_limit(search):
    answers = {"exact": taking(UNPLANNED + 10), "none": taking(UNPLANNED)}
    assert search(answers, LEAST, spent_s=10.0)[1] == ["exact", "none"]
    assert search(answers, LEAST, spent_s=12.5)[1] == ["exact"]


@pytest.mark.parametrize("end", [KeyboardInterrupt(), NoPlanInTime("interrupted")])
def test_ctrl_c_keeps_the_plan_that_is_there(search, end):
    assert isinstance(search({"exact": taking(UNPLANNED + 10), "none": end}, LEAST)[0], Plan)
    interrupted = taking(UNPLANNED + 10, status=Status.INTERRUPTED)
    assert search({"exact": interrupted}, LEAST)[1] == ["exact"]
    with pytest.raises(type(end)):
        search({"exact": end})


def test_what_must_run_again_may_take_more_than_the_overhead():
    plan = plan_network(StatedNetwork(GRAPH), PlanRequest(
        overhead="0.1%", variants="none", recompute=["*"], time_limit=0.3))
    assert plan.overhead > 0.001 and plan.schedule.recomputed()


def test_no_refusal_asks_for_more_than_the_unplanned_network_takes(search):
    above = InfeasibleBudget("", 100, UNPLANNED + 1, bound_bytes=90)
    with pytest.raises(InfeasibleBudget, match="takes less than the unplanned network") as caught:
        search({"exact": above})
    assert caught.value.minimum_bytes == UNPLANNED and caught.value.bound_bytes == 90


def test_what_refuses_a_lowered_budget_may_fit_the_callers():
    """The first plan takes 50 bytes too much; the refusal of the second search has one that fits.
    """
    budgets = []

    def answer(graph, budget_bytes, options):
        budgets.append(budget_bytes)
        plan = PLAN.changed(status=Status.OPTIMAL, bound=PLAN.overhead)
        if len(budgets) == 1:
            return plan
        plan = plan.changed(planned=Footprint(budget_bytes + 1, {}))
        raise InfeasibleBudget("no plan fits", budget_bytes, budget_bytes + 1, best_plan=plan)

    register("stated", answer)
    budget = PLAN.pool_bytes + 10
    plan = plan_network(StatedNetwork(GRAPH, lambda plan: 50 if plan.pool_bytes == PLAN.pool_bytes
                                      else 0), replace(REQUEST, budget=budget, method="stated"))
    assert len(budgets) == 2 and plan.total_bytes == budgets[1] + 1 <= budget
    assert plan.bound == 0.0 and plan.status is Status.FEASIBLE


@pytest.mark.parametrize("taken, answered", [(30, True), (50, True), (70, False)])
def test_what_is_foreseen_beside_the_graph_is_left_free(taken, answered):
    """The reserve is in no statement: not in the budget, nor in what is proven."""
    budgets = []

    def answer(graph, budget_bytes, options):
        budgets.append(budget_bytes)
        return PLAN.changed(planned=Footprint(PLAN.pool_bytes, {}), budget_bytes=budget_bytes,
                            minimum_total_bytes=PLAN.pool_bytes - 20)

    register("stated", answer)
    network = StatedNetwork(GRAPH, lambda plan: taken, reserve_bytes=60)
    request = replace(REQUEST, budget=PLAN.pool_bytes + 55, method="stated")
    if answered:
        assert plan_network(network, request).total_bytes == PLAN.pool_bytes + taken
    else:
        with pytest.raises(InfeasibleBudget) as caught:
            plan_network(network, request)
        assert caught.value.budget_bytes == request.budget
        assert caught.value.minimum_bytes == PLAN.pool_bytes + taken
        assert caught.value.bound_bytes == PLAN.pool_bytes - 20
    assert budgets[0] == request.budget - 60
