"""What a time limit above the usual one buys."""
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from training_nets import residual_network

from memonger.errors import InfeasibleBudget
from memonger.graph import Graph, Op, Tensor
from memonger.plan import Status
from memonger.schedule import expand
from memonger.solve import Options, auto, build, solve, sublinear
from memonger.storage import plan_storage


def _searches(options, within=False, best="a plan", left_s=1e9, is_backward=False, bred=None):
    graph = Graph((Tensor("a", 4, 0),), (Op("a", "op", (), (0,), is_backward=is_backward),), ())
    done, bred = [], [] if bred is None else bred

    @contextmanager
    def searching(work, breed):
        done.append(work)
        bred.append(breed)
        yield

    auto._search_anew(SimpleNamespace(
        graph=graph, options=options, best=best, interrupted=False, core=True, left_s=left_s,
        within=lambda share: within, warm=lambda: None, searching=searching,
        local_search=lambda work, start, breed: bred.append(breed)))
    return len(done), sum(done)


def test_the_usual_limit_buys_nothing():
    assert _searches(Options()) == (0, 0)


def test_more_time_buys_more_searches():
    few, work = _searches(Options(time_limit_s=20))
    many, more = _searches(Options(time_limit_s=40))
    assert 0 < few < many and work < more <= 30 * 40e6


@pytest.mark.parametrize("stop", [{"within": True}, {"best": None}, {"left_s": 5.0}])
def test_no_search_where_it_is_not_worth_one(stop):
    assert _searches(Options(time_limit_s=40), **stop) == (0, 0)


def test_plans_are_crossed_in_training_graphs():
    bred = []
    _searches(Options(time_limit_s=40), is_backward=True, bred=bred)
    assert bred[:4] == [True, True, True, False]
    bred = []
    _searches(Options(time_limit_s=40), bred=bred)
    assert bred and not any(bred)


def test_more_time_is_used_without_highs_too(monkeypatch):
    asked = []
    monkeypatch.setattr(auto.highs, "available", lambda: False)
    monkeypatch.setattr(auto, "_search_anew", lambda search: asked.append(search.best))
    graph = residual_network(6)
    unplanned = plan_storage(graph, expand(graph, {}), "arena").pool_bytes
    solve(graph, int(0.8 * unplanned), "auto", Options(storage="arena", time_limit_s=40))
    assert len(asked) == 1 and asked[0] is not None


def test_a_budget_that_only_time_may_meet_is_refused_in_these_words():
    graph = residual_network(6)
    plan = build.build_plan(graph, expand(graph, {}), "auto", Options(), 1000, Status.TIME_LIMIT)
    with pytest.raises(InfeasibleBudget, match="no plan was found that fits .* in the time limit; "
                       "the smallest.*, give the search more time, or make the batch smaller"):
        build.raise_infeasible(plan, 1000, Options())
    for status, least in ((Status.TIME_LIMIT, plan.total_bytes), (Status.FEASIBLE, 0)):
        refused = replace(plan, status=status, minimum_total_bytes=least)
        with pytest.raises(InfeasibleBudget, match="^no plan fits [^;]*; the smallest"):
            build.raise_infeasible(refused, 1000, Options())


def test_sublinear_stops_between_two_trials():
    graph = residual_network(4)
    assert len(sublinear.search(graph, Options(time_limit_s=1e-9))) == 1
    assert len(sublinear.search(graph, Options())) > 5
