"""What an error called possible is possible, although searches depend on the budget."""
from __future__ import annotations

from dataclasses import replace

import pytest
from small_graphs import chain as chain_of

import memonger.solve
from memonger.errors import InfeasibleBudget
from memonger.schedule import expand
from memonger.solve import Options, recall, register, solve
from memonger.solve.build import build_plan

LIVE = Options(storage="live")


def chain(length):
    return chain_of((400,) * length, (1.0,) * length)


@pytest.fixture
def lucky_once(monkeypatch):
    """A method that finds a small plan at the first call and none at all at later ones."""
    monkeypatch.setattr(recall, "_latest", [])
    monkeypatch.setattr(memonger.solve, "_METHODS", dict(memonger.solve._METHODS))
    calls = []

    def method(graph, budget_bytes, options):
        calls.append(budget_bytes)
        again = {} if len(calls) > 1 else {i: {} for i in range(1, graph.num_forward, 2)}
        return build_plan(graph, expand(graph, again), "lucky", options, budget_bytes)
    register("lucky", method)
    return calls


def refusal(graph, budget_bytes, options=LIVE):
    with pytest.raises(InfeasibleBudget) as caught:
        solve(graph, budget_bytes, "lucky", options)
    return caught.value


def test_the_smallest_plan_of_a_refusal_answers_the_budget_that_it_named(lucky_once):
    graph = chain(8)
    error = refusal(graph, 1)
    room = error.best_plan.pool_bytes
    plan = solve(chain(8), room, "lucky", LIVE)
    assert plan.pool_bytes == room and len(lucky_once) == 2
    assert plan.schedule == error.best_plan.schedule
    assert refusal(graph, room - 1).minimum_bytes == error.minimum_bytes


def test_other_graphs_and_questions_have_no_share_in_it(lucky_once):
    first = refusal(chain(8), 1)
    assert refusal(chain(9), 1).best_plan.graph == chain(9)
    slower = chain(8).with_times([2.0 * op.time_s + 1 for op in chain(8).ops])
    for graph, options in ((slower, LIVE),
                           (chain(8), Options(storage="live", keep=(1,)))):
        assert refusal(graph, 1, options).minimum_bytes > first.minimum_bytes


def test_only_the_latest_are_kept(lucky_once):
    first = refusal(chain(8), 1)
    for length in range(10, 20):
        refusal(chain(length), 1)
    assert len(recall._latest) == 8
    assert refusal(chain(8), 1).minimum_bytes > first.minimum_bytes


def test_bounds_are_those_of_the_refused_search(lucky_once):
    graph, options = chain(8), LIVE
    refusal(graph, 1)
    found = build_plan(graph, expand(graph, {}), "lucky", options, 5)
    found = replace(found, bound=0.0, minimum_total_bytes=7)
    known = recall.smaller(found, 5, "lucky", options)
    assert known.pool_bytes < found.pool_bytes
    assert known.bound == 0.0 and known.minimum_total_bytes == 7
