"""Recomputation in advance: before it is needed, while what it is made from is still there."""
import random
from dataclasses import replace

import pytest
import reference.brute  # noqa: F401  a method of that name
import strategies

from memonger.graph.imported import single_output_graph
from memonger.graph.schedule import expand
from memonger.memory.storage import plan_storage
from memonger.solve import Options, solve
from memonger.solve.search.native import Decisions, NativeSearch
from memonger.util.errors import InfeasibleBudget


def decisions(rng, core):
    choices, advance = [], []
    for _, _, begin, end, trailing in core.gaps():
        choices.append(rng.choice((0, 1, 2)))
        early = not trailing and end - begin > 1 and rng.random() < 0.3
        advance.append(rng.randrange(begin + 1, end) if early else -1)
    return Decisions(tuple(choices), tuple(advance), ())


def peak(graph):
    return plan_storage(graph, expand(graph, {}), "live").pool_bytes


def test_decisions_of_a_schedule_recompute_in_advance_again():
    used = same = found = 0
    for seed in range(200):
        rng = random.Random(seed)
        graph = strategies.foreign_graph(rng, rng.randint(2, 30))
        core = NativeSearch(graph, Options(storage="live"))
        first = core.evaluate(decisions(rng, core))
        if first is None:
            continue
        again = core.decisions_of(first.schedule)
        second = core.evaluate(again)
        found += 1
        used += any(op >= 0 for op in again.advance)
        same += (second is not None and second.cost_s <= first.cost_s * (1 + 1e-9)
                 and second.peak_bytes <= first.peak_bytes)
    assert used > 40
    assert same >= 0.98 * found


def early_graph():
    """Op 1 reads the costly op 0, and is read last.

    In 112 bytes there is no room for both beside op 2, and none for op 0 beside op 4: so op 1 has
    to run again between them, not when it is needed.
    """
    return single_output_graph(
        ["op%d" % i for i in range(6)], [40, 30, 60, 10, 70, 1], [100, 1, 1, 1, 1, 1], [True] * 6,
        [(0, 1), (0, 2), (2, 3), (3, 4), (1, 5), (4, 5)])


@pytest.mark.parametrize("method", ["local", "auto", "brute"])
def test_what_is_cheap_is_made_again_while_its_source_is_there(method):
    graph = early_graph()
    plan = solve(graph, 112, method, Options(storage="live"))
    assert plan.schedule.time_s(graph) == 106
    assert [step.op for step in plan.schedule.steps] == [0, 1, 2, 3, 1, 4, 5]


@pytest.mark.parametrize("seed", [1, 2, 3, 13])  # where the larger budget can be kept
def test_local_search_reaches_the_optimum_where_anything_may_run_at_any_time(seed):
    rng = random.Random(1000 + seed)
    graph = strategies.foreign_graph(rng, rng.randint(7, 11))
    for share in (0.85, 0.7):
        answers = []
        for method in ("brute", "local"):
            try:
                plan = solve(graph, int(peak(graph) * share), method,
                             Options(storage="live", effort=0.2))
                answers.append(plan.schedule.time_s(graph))
            except InfeasibleBudget:
                answers.append(None)
        assert answers[0] == answers[1]


def test_a_warm_start_keeps_what_is_recomputed_in_advance():
    graph = early_graph()
    core = NativeSearch(graph, Options(storage="live"))
    warm = core.decisions_of(solve(graph, 112, "brute", Options(storage="live")).schedule)
    assert 4 in warm.advance
    # A search that has just time to look at where it starts.
    assert core.search(112, 1, 10.0, 1, warm).cost_s == 106
    lazy = replace(warm, advance=(-1,) * len(warm.advance))
    assert not core.search(112, 1, 10.0, 1, lazy).feasible
