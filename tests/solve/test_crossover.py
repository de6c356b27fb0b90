"""Searches that cross a population of plans, and exchanges of one change for two."""
import itertools
import random
from dataclasses import replace

import pytest
from training_nets import residual_network

from memonger.graph.imported import single_output_graph
from memonger.solve import Options
from memonger.solve.search.native import NativeSearch

BIG = 1000


def knapsack(sizes, times):
    """Each value is read once behind an op that takes much room, where not all of them fit.

    Whatever is not kept there is made again for its reader, when there is room for it.
    """
    count = len(sizes)
    edges = [(count, count + 1)]
    for i in range(count):
        edges += [(i, count + 2 + i), (count + 1 + i, count + 2 + i)]
    return single_output_graph(
        ["op%d" % i for i in range(2 * count + 2)], [*sizes, BIG, *[1] * (count + 1)],
        [*times, *[1] * (count + 2)], [True] * count + [False] * (count + 2), edges)


def extra(graph, found):
    """Time beyond the unplanned step."""
    return found.cost_s - graph.time_s


def least_time(sizes, times, room):
    """By trying all subsets."""
    return min(sum(t for t, keep in zip(times, kept) if not keep)
               for kept in itertools.product((False, True), repeat=len(sizes))
               if sum(s for s, keep in zip(sizes, kept) if keep) <= room)


def bred(graph, room, work=10 ** 7, warm=None):
    native = NativeSearch(graph, Options(storage="live"))
    return native.search(room, work, 60.0, 1, warm, crossover=True)


@pytest.mark.parametrize("seed", range(8))
def test_the_best_subset_is_kept(seed):
    rng = random.Random(seed)
    sizes = [rng.randint(10, 99) for _ in range(12)]
    times = [size * rng.randint(20, 30) for size in sizes]
    room = sum(sizes) // 2
    graph = knapsack(sizes, times)
    found = bred(graph, BIG + 1 + room)
    assert found.feasible and extra(graph, found) == least_time(sizes, times, room)


def test_two_small_values_are_kept_in_place_of_a_large_one():
    # Little work, from a plan that no change and no swap improves on: 520 < 289 + 258.
    sizes, times = (20, 10, 10), (520, 289, 258)
    graph = knapsack(sizes, times)
    core = NativeSearch(graph, Options(storage="live"))
    unplanned = core.unplanned()
    kept_large = replace(unplanned, choices=tuple(
        1 if op in (1, 2) and not trailing else choice
        for choice, (op, _, _, _, trailing) in zip(unplanned.choices, core.gaps())))
    assert extra(graph, core.evaluate(kept_large)) == 289 + 258
    assert extra(graph, bred(graph, BIG + 21, 10 ** 5, kept_large)) == 520


@pytest.mark.parametrize("storage", ["live", "arena", "best"])
def test_the_same_work_finds_the_same_plan(storage):
    graph = residual_network(6)

    def search():
        core = NativeSearch(graph, Options(storage=storage))
        room = core.evaluate(core.unplanned()).pool_bytes * 3 // 4
        return core.search(room, 2 * 10 ** 6, 60.0, 5, crossover=True)

    first = search()
    assert first.feasible and search() == first


def test_it_never_ends_above_where_it_started():
    graph = residual_network(8)
    core = NativeSearch(graph, Options(storage="live"))
    room = core.evaluate(core.unplanned()).pool_bytes * 6 // 10
    warm = core.search(room, 10 ** 6, 60.0, 2)
    again = core.search(room, 10 ** 6, 60.0, 3, warm.decisions, crossover=True)
    assert warm.feasible and again.feasible and again.cost_s <= warm.cost_s
