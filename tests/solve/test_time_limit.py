"""Work is counted: what a time limit buys, and that the clock decides nothing."""
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from training_nets import residual_network

from memonger.graph.schedule import expand
from memonger.memory.storage import plan_storage
from memonger.planning import searches
from memonger.plans.plan import Status
from memonger.solve import Options, effort, solve
from memonger.solve import least_memory as frontier
from memonger.solve import result as build
from memonger.solve.baselines import sublinear
from memonger.solve.board import Board
from memonger.solve.effort import CLOCK_FACTOR, STEPS_PER_S, Effort
from memonger.solve.fallbacks import find_fallback
from memonger.solve.search import local
from memonger.util.errors import InfeasibleBudget, NoPlanInTime

GRAPH = residual_network(4)
UNPLANNED = plan_storage(GRAPH, expand(GRAPH, {}), "arena").pool_bytes


class Clock:
    """A clock that runs by hand."""

    def __init__(self):
        self.now_s = 0.0

    def perf_counter(self):
        return self.now_s


def test_work_is_spent_by_parts_and_by_the_whole():
    whole = Effort(8.0)
    part = whole.part(0.5)
    part.spend(3.0)
    assert (part.left_s, whole.left_s) == (1.0, 5.0)
    assert whole.steps == 5 * STEPS_PER_S
    whole.spend(6.0)
    assert whole.left_s < 0 and whole.steps == 0


def test_the_clock_is_a_net_far_away(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(effort, "time", clock)
    work = Effort(10.0)
    clock.now_s = 100.0
    assert work.left_s == 10.0
    clock.now_s = 10 * CLOCK_FACTOR + 1
    assert work.left_s == 0


def test_steps_of_a_large_graph_count_for_more():
    assert effort.steps_per_s(3000) == STEPS_PER_S == effort.steps_per_s(10)
    work = Effort(10.0, num_ops=12000)
    part = work.part(1.0)
    part.spend(part.seconds(5 * STEPS_PER_S))
    assert work.spent_s == 10.0 and work.steps == 0
    assert Effort(10.0, num_ops=10, storage="best").steps < Effort(10.0, num_ops=10).steps


def test_searches_of_a_large_network_have_what_reading_leaves():
    def searches_s(num_ops, time_limit=10.0):
        graph = SimpleNamespace(ops=[None] * num_ops, pools="executor")
        return searches.search_s(SimpleNamespace(graph=graph), time_limit)

    assert searches_s(100) == searches_s(7000) == 13.0
    assert searches_s(12000) == pytest.approx(20.0 - 12000 * searches.S_PER_OP)
    # Of one that finds plans.
    assert searches_s(40000) > searches.LEAST_FIRST * 0.4 * 12e6 * 40000 / 700 / STEPS_PER_S


@pytest.mark.parametrize("share", [0.8, 0.45])
def test_a_slow_machine_gives_the_same_plan(share, monkeypatch):
    """Each look at the clock finds that half a second has gone."""
    options = Options(storage="arena", time_limit_s=0.5)
    idle = solve(GRAPH, int(share * UNPLANNED), "auto", options)

    class Slow(Clock):
        def perf_counter(self):
            self.now_s += 0.5 if self.now_s < 8 else 0.0
            return self.now_s

    monkeypatch.setattr(effort, "time", Slow())
    busy = solve(GRAPH, int(share * UNPLANNED), "auto", options)
    assert (busy.schedule, busy.bound, busy.status) == (idle.schedule, idle.bound, idle.status)


def test_more_time_buys_more_steps_and_less_time_fewer():
    usual = local.work_for(GRAPH)
    assert local.work_for(GRAPH, 20.0) == usual + 10 * STEPS_PER_S
    assert local.work_for(GRAPH, 0.05) == 0.05 * STEPS_PER_S < usual


def test_a_search_without_highs_plans_too(monkeypatch):
    from memonger.solve.mip import highs
    monkeypatch.setattr(highs, "available", lambda: False)
    plan = solve(GRAPH, int(0.8 * UNPLANNED), "auto", Options(storage="arena", time_limit_s=0.5))
    assert plan.pool_bytes <= 0.8 * UNPLANNED and plan.bound <= plan.overhead + 1e-9


def test_no_budget_is_refused_that_a_method_of_ours_meets():
    """Even where the search itself finds nothing."""
    from memonger.solve import auto
    options = Options(storage="arena", time_limit_s=0.5)
    for method in ("chen", "ogc", "sublinear"):
        found = solve(GRAPH, None, method, replace(options, bound=False))
        assert solve(GRAPH, found.pool_bytes, "auto", options).pool_bytes <= found.pool_bytes
    within = replace(options, objective="memory",
                     max_overhead=GRAPH.forward_time_s / GRAPH.time_s)
    least = frontier.least_memory(GRAPH, None, within)
    options = replace(options, without=frozenset(
        row.name for row in auto.ROWS if not row.name.startswith(("smallest", "least"))))
    assert solve(GRAPH, least.pool_bytes, "auto", options).pool_bytes <= least.pool_bytes


def test_what_an_error_calls_possible_is():
    options = Options(storage="arena", time_limit_s=0.5)
    with pytest.raises(InfeasibleBudget) as refused:
        solve(GRAPH, UNPLANNED // 50, "auto", options)
    least = refused.value.best_plan.pool_bytes
    assert solve(GRAPH, least, "auto", options).pool_bytes <= least


def test_a_budget_that_only_time_may_meet_is_refused_in_these_words():
    plan = build.build_plan(GRAPH, expand(GRAPH, {}), "auto", Options(), 1000, Status.TIME_LIMIT)
    assert re.match("no plan was found that fits .* in the time limit; the smallest.*, or give "
                    "the search more time$", str(build.refusal(plan)))
    for status, least in ((Status.TIME_LIMIT, plan.total_bytes), (Status.FEASIBLE, 0)):
        refused = plan.changed(status=status, minimum_total_bytes=least)
        assert re.match("no plan fits [^;]*; the smallest", str(build.refusal(refused)))


def test_chains_and_smallest_plans_are_counted():
    options = Options(storage="live")
    board = Board.start(GRAPH, UNPLANNED // 2, options)
    assert board.chain is not None
    spent_s = board.effort.spent_s
    assert next(board.chain.plans(UNPLANNED // 2)) and board.effort.spent_s > spent_s > 0.2
    spent_s = board.effort.spent_s
    find_fallback(board)
    assert board.fallback is not None and board.effort.spent_s > spent_s + 0.1


def test_a_longer_limit_is_never_worse():
    """Rounds above the usual limit do not depend on it: each search begins as the shorter one."""
    graph = residual_network(12)
    budget = int(0.35 * plan_storage(graph, expand(graph, {}), "arena").pool_bytes)
    without = frozenset(["chain", "turn 1", "turn 2", "turn 3", "turn 4", "programs"])
    plans = [solve(graph, budget, "auto", Options(storage="arena", time_limit_s=limit_s,
                                                  without=without))
             for limit_s in (10.0, 10.1, 13.0)]
    overheads, bounds = [p.overhead for p in plans], [p.bound for p in plans]
    assert overheads == sorted(overheads, reverse=True) and bounds == sorted(bounds)
    assert overheads[0] > overheads[2]


def test_sublinear_stops_between_two_trials_where_the_net_strikes(monkeypatch):
    graph = residual_network(4)
    assert len(list(sublinear.search(graph, Options()))) > 5
    times = iter([0.0] + [1e9] * 1000)
    monkeypatch.setattr(effort, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    assert len(list(sublinear.search(graph, Options()))) == 1


@pytest.mark.parametrize("share", [None, 0.45, 0.02])
@pytest.mark.parametrize("method", ["auto", "milp", "local", "sublinear"])
def test_ctrl_c_ends_every_search_at_once(method, share):
    """Starts from other methods, and the smallest plan, went on as if nothing had been asked."""
    budget = None if share is None else int(share * UNPLANNED)
    for number in (1, 2, 4, 8, 12):
        seen = []

        def stop(progress, seen=seen, number=number):
            seen.append(progress)
            if len(seen) == number:
                raise KeyboardInterrupt

        options = Options(storage="arena", time_limit_s=0.5, progress=stop, max_overhead=0.3,
                          objective="time" if budget else "memory")
        try:
            plan = solve(GRAPH, budget, method, options)
            assert len(seen) < number or plan.status in (Status.INTERRUPTED, Status.OPTIMAL)
        except (NoPlanInTime, InfeasibleBudget) as error:
            assert len(seen) < number or isinstance(error, NoPlanInTime)
        assert len(seen) <= number


def test_planning_storage_counts_also_where_the_pool_is_remembered():
    """The same call gives the same plan a second time."""
    def spent_s():
        board = Board.start(GRAPH, UNPLANNED, Options(storage="arena", account=Effort(9.0)))
        board.evaluate(expand(GRAPH, {}))
        assert board.effort.spent_s == board.options.account.spent_s
        return board.effort.spent_s

    assert plan_storage(GRAPH, expand(GRAPH, {}), "arena").placed > 0
    assert spent_s() == spent_s() > 0
