"""Lower bounds hold for what the storage models count, on random graphs and random plans."""
from __future__ import annotations

import random

import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from memonger.graph.schedule import Schedule, expand
from memonger.graph.types import Graph
from memonger.memory.storage import plan_storage
from memonger.solve.effort import Effort
from memonger.solve.mip.bounds import knapsack_bound, minimum_peak_bound, overhead_bound
from memonger.solve.mip.problem import reduce_graph


def check(graph: Graph, schedule: Schedule, variants: str = "none") -> None:
    """A plan with this peak exists, so no bound may say otherwise."""
    storage = plan_storage(graph, schedule, "live")
    extra = schedule.time_s(graph) - graph.time_s
    peak = storage.peak_live_bytes
    reduced = reduce_graph(graph, variants)
    assert minimum_peak_bound(graph, reduced=reduced).bytes <= peak
    for rounds, integer in ((3, False), (8, True)):
        bound = overhead_bound(graph, peak, effort=Effort(1.0), reduced=reduced, rounds=rounds,
                               integer=integer)
        assert bound.extra_s <= extra + 1e-6, bound
    if variants == "none":
        assert knapsack_bound(reduced, peak).extra_s <= extra + 1e-6
    pool = plan_storage(graph, schedule, "best").pool_bytes
    if not graph.recompute_in_forward:
        assert minimum_peak_bound(graph, reduced=reduced, layers=4).bytes <= pool
        for layers in (2, 8):
            bound = overhead_bound(graph, pool, effort=Effort(1.0), reduced=reduced, layers=layers)
            assert bound.extra_s <= extra + 1e-6, bound
    tiny = reduce_graph(graph, variants, negligible_bytes=16)
    assert overhead_bound(graph, peak, reduced=tiny, integer=False).extra_s <= extra + 1e-6


@given(strategies.planned_graphs(max_forward=9))
def test_bounds_hold_for_plans_of_mxnet_graphs(planned) -> None:
    check(*planned)


@given(strategies.planned_graphs(max_forward=6, pools="cached_op"))
def test_bounds_hold_with_two_pools(planned) -> None:
    check(*planned)


@given(strategies.foreign_graphs())
def test_bounds_hold_for_plans_of_other_graphs(planned) -> None:
    check(*planned)


@given(st.integers(0, 10**9))
def test_bounds_hold_with_variants(seed: int) -> None:
    check_variants(seed)


def check_variants(seed: int) -> None:
    from memonger.graph.decisions import graph_in_use
    rng = random.Random(seed)
    graph = strategies.variants(rng, strategies.training_graph(rng, rng.randint(2, 8)))
    used, taken = [], set()
    for index, variant in enumerate(graph.variants):
        if variant.op not in taken and rng.random() < 0.6:
            taken.add(variant.op)
            used.append(index)
    base = graph_in_use(graph, Schedule((), tuple(used)))
    steps = expand(base, strategies.decisions(rng, base)).steps
    check(graph, Schedule(steps, tuple(used)), "exact")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(500))
def test_bounds_hold_for_many_plans(seed: int) -> None:
    rng = random.Random(seed)
    graph = strategies.training_graph(rng, rng.randint(1, 14))
    for _ in range(3):
        check(graph, expand(graph, strategies.decisions(rng, graph)))
    check_variants(seed)
    foreign = strategies.foreign_graph(rng, 12)
    check(foreign, strategies.foreign_schedule(rng, foreign))
